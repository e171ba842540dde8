//! Keeps web pages out. A browser on this machine reaches loopback ports for any page that it shows, so a page of
//! somebody else must not be able to act here (cross-site requests) or to read (DNS rebinding).

use std::net::IpAddr;

use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap, ORIGIN};

use super::problem::Problem;
use crate::metadata::MetadataImage;

/// Refuses a request whose `Host` is a name that no node of the cluster goes by, or whose `Origin` is another host.
pub(super) fn check(headers: &HeaderMap, image: &MetadataImage) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let host = text(HOST);
    if let Some(host) = host
        && !is_ours(host_name(host), image)
    {
        let detail = format!("{host} is not a name of this cluster");
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail).and_close());
    }
    if let Some(origin) = text(ORIGIN) {
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        if Some(authority) != host {
            let detail = format!("pages of {origin} may not use this port");
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).and_close());
        }
    }
    Ok(())
}

fn host_name(host: &str) -> &str {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    without_port.trim_start_matches('[').trim_end_matches(']')
}

/// Addresses cannot be rebound; names must be known.
fn is_ours(name: &str, image: &MetadataImage) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || image.brokers.values().any(|broker| {
            let endpoints = &broker.registration.endpoints;
            [&endpoints.admin, &endpoints.client].iter().any(|e| e.host.eq_ignore_ascii_case(name))
        })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;
    use crate::admin::fake;

    #[test]
    fn hosts_and_origins() {
        let image = fake::image();
        let check = |host: &'static str, origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            check(&headers, &image)
        };
        for ours in
            ["127.0.0.1:9292", "localhost:9292", "localhost", "[::1]:9292", "node-1.test:80"]
        {
            assert_eq!(check(ours, None), Ok(()), "{ours}");
        }
        assert!(check("evil.example:9292", None).is_err());
        assert_eq!(check("localhost:9292", Some("http://localhost:9292")), Ok(()));
        for foreign in ["http://evil.example", "http://localhost:8000", "null"] {
            assert!(check("localhost:9292", Some(foreign)).is_err(), "{foreign}");
        }
    }
}
