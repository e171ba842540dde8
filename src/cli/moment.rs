//! Where `consume` begins, as people write it.

use std::str::FromStr;

use crate::client::StartAt;
use crate::types::{TimestampMs, time};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// `earliest`, `latest`, an offset, or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct From(pub(super) StartAt);

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, time::wall_ms()).ok_or_else(|| {
            format!(
                "{text:?} is neither earliest, latest, an offset, a time (2026-03-14T15:09:26Z or \
                 @MILLISECONDS), nor an age (90s, 10m, 2h, 7d)"
            )
        })
    }
}

impl From {
    fn parse(text: &str, now_ms: TimestampMs) -> Option<Self> {
        let start = match text {
            "earliest" => StartAt::Earliest,
            "latest" => StartAt::Latest,
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                StartAt::Offset(text.parse().ok()?)
            }
            _ => {
                let at = match text.strip_prefix('@') {
                    Some(milliseconds) => milliseconds.parse().ok(),
                    None => age_ms(text).map(|age| now_ms - age).or_else(|| instant_ms(text)),
                };
                StartAt::Time(at?)
            }
        };
        Some(Self(start))
    }
}

/// `90s`, `10m`, `2h`, `7d`.
fn age_ms(text: &str) -> Option<i64> {
    let unit_ms = match text.as_bytes().last()? {
        b's' => 1000,
        b'm' => 60 * 1000,
        b'h' => 60 * 60 * 1000,
        b'd' => DAY_MS,
        _ => return None,
    };
    let count: i64 = text[..text.len() - 1].parse().ok()?;
    count.checked_mul(unit_ms).filter(|age| *age >= 0)
}

/// RFC 3339: `2026-03-14T15:09:26.535+01:00`. Without a time of day, midnight; without a zone, UTC.
fn instant_ms(text: &str) -> Option<TimestampMs> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days_since_epoch(year, month, day) * DAY_MS;
    if rest.is_empty() {
        return Some(midnight);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let zone_at = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':')?;
    if hour > 23 || minute > 59 || second > 60 || fraction.is_empty() {
        return None;
    }
    let digits: String = fraction.chars().chain("00".chars()).take(3).collect();
    let fraction_ms: i64 = digits.parse().ok()?;
    let zone_ms = match zone {
        "" | "Z" | "z" => 0,
        zone => {
            let (sign, zone) = if let Some(zone) = zone.strip_prefix('-') {
                (-1, zone)
            } else {
                (1, zone.strip_prefix('+')?)
            };
            let [hours, minutes] = numbers(zone, ':')?;
            sign * (hours * 60 + minutes) * 60 * 1000
        }
    };
    Some(midnight + ((hour * 60 + minute) * 60 + second) * 1000 + fraction_ms - zone_ms)
}

/// Exactly N unsigned numbers with separators between.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let parse = |part: &str| -> Option<i64> {
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let numbers: Option<Vec<i64>> = text.split(separator).map(parse).collect();
    numbers?.try_into().ok()
}

/// Of the proleptic Gregorian calendar. Years begin in March here, so that the leap day is the last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<StartAt>) {
        assert_eq!(From::parse(text, 1_000_000_000_000).map(|from| from.0), expected, "{text}");
    }

    #[test]
    fn places_and_ages() {
        check("earliest", Some(StartAt::Earliest));
        check("latest", Some(StartAt::Latest));
        check("42", Some(StartAt::Offset(42)));
        check("@42", Some(StartAt::Time(42)));
        check("10m", Some(StartAt::Time(999_999_400_000)));
        check("1d", Some(StartAt::Time(999_913_600_000)));
    }

    #[test]
    fn instants() {
        check("1970-01-01", Some(StartAt::Time(0)));
        check("1970-01-01T00:00:00Z", Some(StartAt::Time(0)));
        check("2000-02-29T23:59:59.5Z", Some(StartAt::Time(951_868_799_500)));
        check("2026-03-14T15:09:26+01:00", Some(StartAt::Time(1_773_497_366_000)));
        check("2026-03-14 15:09:26-00:30", Some(StartAt::Time(1_773_502_766_000)));
        check("1969-12-31T23:59:59Z", Some(StartAt::Time(-1000)));
    }

    #[test]
    fn nonsense() {
        for text in ["", "soon", "-5", "5x", "2026-13-01", "2026-01-01T25:00:00Z", "@", "m", "1e3m"]
        {
            check(text, None);
        }
    }
}
