//! Stands between the nodes of our own cluster, and breaks what passes.
//!
//! Each node is looked for at an address where this listens, and every connection comes from an address that says who
//! opened it; so each direction between two nodes can be cut or slowed down by itself. What is cut is silence, not an
//! end: nothing is closed, and nothing arrives. When a node is gone, nobody listens at its address either, so that others
//! are refused as they would be by its machine.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cli::dev::apart;
use crate::cli::error::Failure;

/// Between two looks whether a node is back.
const RETRY: Duration = Duration::from_millis(20);
const CHUNK_SIZE: usize = 64 << 10;
const BACKLOG: u32 = 128;

/// What happens to the bytes from one node to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Link {
    is_cut: bool,
    delay: Duration,
}

/// Directions: from a node, to a node.
type Links = BTreeMap<(i32, i32), watch::Sender<Link>>;

/// The proxies end with it. Clones act on the same network.
#[derive(Debug, Clone)]
pub(super) struct Network {
    links: Arc<Links>,
    _proxies: Arc<JoinSet<()>>,
}

impl Network {
    /// `peers` are the peer listeners of the nodes, by id.
    pub(super) fn start(peers: &[(i32, SocketAddr)]) -> Result<Self, Failure> {
        let mut links = Links::new();
        for (from, _) in peers {
            for (to, _) in peers.iter().filter(|(to, _)| to != from) {
                links.insert((*from, *to), watch::Sender::new(Link::default()));
            }
        }
        let links = Arc::new(links);
        let mut proxies = JoinSet::new();
        for &(id, node) in peers {
            let seen_at = apart::seen_at(u16::try_from(id).unwrap_or(u16::MAX));
            let proxy =
                Proxy { id, seen_at: (seen_at, node.port()).into(), node, links: links.clone() };
            // Now, so that an address in use is said at once.
            let listener = proxy.listen().map_err(|error| {
                Failure::refused(format!(
                    "cannot stand between the nodes at {}: {error}",
                    proxy.seen_at
                ))
            })?;
            proxies.spawn(proxy.run(listener));
        }
        Ok(Self { links, _proxies: Arc::new(proxies) })
    }

    /// Nothing passes from any of `from` to any of `to`.
    pub(super) fn cut(&self, from: &[i32], to: &[i32]) {
        self.change(from, to, |link| link.is_cut = true);
    }

    /// Each chunk of bytes takes so much longer.
    pub(super) fn slow(&self, from: &[i32], to: &[i32], delay: Duration) {
        self.change(from, to, |link| link.delay = delay);
    }

    pub(super) fn heal(&self) {
        for link in self.links.values() {
            link.send_replace(Link::default());
        }
    }

    fn change(&self, from: &[i32], to: &[i32], change: impl Fn(&mut Link)) {
        for ((source, target), link) in &*self.links {
            if from.contains(source) && to.contains(target) {
                link.send_modify(&change);
            }
        }
    }
}

/// In front of one node.
#[derive(Debug)]
struct Proxy {
    id: i32,
    seen_at: SocketAddr,
    node: SocketAddr,
    links: Arc<Links>,
}

impl Proxy {
    fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.seen_at)?;
        socket.listen(BACKLOG)
    }

    async fn run(self, listener: TcpListener) {
        let mut open = Some(listener);
        let mut connections = JoinSet::new();
        loop {
            let Some(listener) = &open else {
                sleep(RETRY).await;
                if TcpStream::connect(self.node).await.is_ok() {
                    // The address was ours a moment ago. If it is not now, the next look tries again.
                    open = self.listen().ok();
                }
                continue;
            };
            let is_gone = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, source)) => self.connect(stream, source.ip(), &mut connections).await,
                    Err(_) => false,
                },
                // A connection that ended may have ended with the node.
                Some(_) = connections.join_next() => TcpStream::connect(self.node).await.is_err(),
            };
            if is_gone {
                open = None;
            }
        }
    }

    /// True when the node is gone.
    async fn connect(
        &self,
        stream: TcpStream,
        source: IpAddr,
        connections: &mut JoinSet<()>,
    ) -> bool {
        let Some(from) = node_of(source) else { return false };
        let link = |pair| self.links.get(&pair).map(watch::Sender::subscribe);
        let (Some(there), Some(back)) = (link((from, self.id)), link((self.id, from))) else {
            return false;
        };
        let Ok(node) = TcpStream::connect(self.node).await else { return true };
        // Small frames must not wait for each other here.
        if stream.set_nodelay(true).and_then(|()| node.set_nodelay(true)).is_err() {
            return false;
        }
        let (read, write) = stream.into_split();
        let (node_read, node_write) = node.into_split();
        connections.spawn(async move {
            // Either end ends both.
            tokio::select! {
                () = pump(read, node_write, there) => {}
                () = pump(node_read, write, back) => {}
            }
        });
        false
    }
}

/// By the address that its connections come from.
fn node_of(source: IpAddr) -> Option<i32> {
    let IpAddr::V4(source) = source else { return None };
    (1..=9_u16).find(|id| apart::comes_from(*id) == source).map(i32::from)
}

/// Until one end closes. Nothing is read while the link is cut, and what was read then is kept.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut chunk = vec![0; CHUNK_SIZE];
    loop {
        if link.wait_for(|link| !link.is_cut).await.is_err() {
            return;
        }
        let Ok(size @ 1..) = from.read(&mut chunk).await else { return };
        let delay = link.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if link.wait_for(|link| !link.is_cut).await.is_err()
            || to.write_all(&chunk[..size]).await.is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A node that sends back what it gets, and a connection to it as node 2 would make it.
    async fn echo() -> (Network, TcpListener, SocketAddr) {
        let node = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = node.local_addr().unwrap();
        let other = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
        let network = Network::start(&[(1, address), (2, other)]).unwrap();
        (network, node, SocketAddr::from((apart::seen_at(1), address.port())))
    }

    async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((apart::comes_from(2), 0).into())?;
        socket.connect(to).await
    }

    #[tokio::test]
    async fn a_cut_direction_is_silent_and_the_other_goes_on() {
        let (network, node, seen_at) = echo().await;
        let mut client = connect(seen_at).await.unwrap();
        let (mut server, _) = node.accept().await.unwrap();
        let mut byte = [0];
        client.write_all(b"a").await.unwrap();
        server.read_exact(&mut byte).await.unwrap();

        network.cut(&[2], &[1]);
        client.write_all(b"b").await.unwrap();
        for expected in b"xyz" {
            server.write_all(&[*expected]).await.unwrap();
            client.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [*expected]);
        }
        // All that time, the other direction had its chance.
        assert!(server.try_read(&mut byte).is_err());
        network.heal();
        server.read_exact(&mut byte).await.unwrap();
        assert_eq!(byte, *b"b");
    }

    #[tokio::test]
    async fn nobody_listens_in_front_of_a_node_that_is_gone() {
        let (_network, node, seen_at) = echo().await;
        let _client = connect(seen_at).await.unwrap();
        let (server, _) = node.accept().await.unwrap();
        let address = node.local_addr().unwrap();
        drop((server, node));
        while connect(seen_at).await.is_ok() {
            sleep(RETRY).await;
        }
        let back = TcpListener::bind(address).await.unwrap();
        while connect(seen_at).await.is_err() {
            sleep(RETRY).await;
        }
        drop(back);
    }
}
