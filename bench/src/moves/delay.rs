//! A proxy that makes loopback as far as another continent: what goes through arrives half a
//! round trip later, in both directions, and the first bytes of a connection a whole one later
//! still, as its handshake would have taken.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Runs until this process ends.
pub(super) struct Proxy {
    pub(super) port: u16,
}

impl Proxy {
    /// Listens on loopback, in front of a server there.
    pub(super) fn start(server: u16, round_trip: Duration) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listening for the proxy")?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client whose server is gone sees its connection closed.
                let _ = connect(client, server, round_trip);
            }
        });
        Ok(Proxy { port })
    }
}

fn connect(client: TcpStream, server: u16, round_trip: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let open = Instant::now() + round_trip;
    pump(
        client.try_clone()?,
        server.try_clone()?,
        round_trip / 2,
        open,
    );
    pump(server, client, round_trip / 2, open);
    Ok(())
}

/// One thread reads and says when what it has read may arrive; another one waits and writes.
fn pump(mut from: TcpStream, mut to: TcpStream, delay: Duration, open: Instant) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(CHUNKS_UNDER_WAY);
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

/// What may be under way on one connection: more than any answer of these benchmarks.
const CHUNKS_UNDER_WAY: usize = 256;
const CHUNK_LEN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_a_round_trip_and_the_first_one_two() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                stream.write_all(&byte).unwrap();
            }
        });
        let round_trip = Duration::from_millis(40);
        let proxy = Proxy::start(port, round_trip).unwrap();
        // The first round trip is that of connecting.
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
