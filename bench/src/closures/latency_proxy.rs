//! A TCP proxy that adds network latency: data arrives half a round trip later in each direction.
//! The first bytes of a connection are delayed by one more round trip, for its handshake.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// A proxy that runs until this process ends.
pub(super) struct LatencyProxy {
    pub(super) port: u16,
}

impl LatencyProxy {
    /// Listens on loopback and connects to a server at `authority`, which is `host:port`.
    pub(super) fn start(authority: &str, round_trip: Duration) -> Result<LatencyProxy> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen for the proxy")?;
        let port = listener.local_addr()?.port();
        let authority = authority.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server cannot be reached, the client's connection is closed.
                let _ = connect(client, &authority, round_trip);
            }
        });
        Ok(LatencyProxy { port })
    }
}

fn connect(client: TcpStream, authority: &str, round_trip: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(authority)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let open = Instant::now() + round_trip;
    forward(
        client.try_clone()?,
        server.try_clone()?,
        round_trip / 2,
        open,
    );
    forward(server, client, round_trip / 2, open);
    Ok(())
}

/// Starts a thread that reads and computes the due time of each chunk, and one that waits and
/// writes.
fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration, open: Instant) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(CHUNKS_IN_FLIGHT);
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK_LEN];
        while let Ok(len) = from.read(&mut buffer) {
            let due = Instant::now().max(open) + delay;
            if len == 0 || sender.send((due, buffer[..len].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// More than the largest response of these benchmarks, so that the window never limits it.
const CHUNKS_IN_FLIGHT: usize = 256;
const CHUNK_LEN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_takes_one_round_trip_and_the_first_one_two() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = server.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                stream.write_all(&byte).unwrap();
            }
        });
        let round_trip = Duration::from_millis(40);
        let proxy = LatencyProxy::start(&authority, round_trip).unwrap();
        // The handshake is the first of the two round trips.
        let mut began = Instant::now();
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        for least in [round_trip * 2, round_trip] {
            client.write_all(b"x").unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            assert!(began.elapsed() >= least, "{:?}", began.elapsed());
            began = Instant::now();
        }
    }
}
