//! A proxy between a client and a Unix socket that breaks a connection.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// A proxy that ends each connection after a number of bytes in one direction.
pub struct CuttingProxy {
    directory: tempfile::TempDir,
    cuts: Arc<AtomicUsize>,
}

impl CuttingProxy {
    /// Starts a proxy before a server. Without a place, it cuts nothing.
    pub fn start(server: &Path, cut: Option<(Direction, usize)>) -> CuttingProxy {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let (server, cuts) = (server.to_owned(), Arc::<AtomicUsize>::default());
        let counted = cuts.clone();
        // The thread ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                forward(client, &server, cut, &counted);
            }
        });
        CuttingProxy { directory, cuts }
    }

    /// Returns the socket of the proxy.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Returns how many connections were cut.
    pub fn cut_count(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

fn forward(
    client: UnixStream,
    server: &Path,
    cut: Option<(Direction, usize)>,
    cuts: &Arc<AtomicUsize>,
) {
    let Ok(server) = UnixStream::connect(server) else {
        return;
    };
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (from, to) = match direction {
            Direction::ToServer => (&client, &server),
            Direction::ToClient => (&server, &client),
        };
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let limit = cut.filter(|cut| cut.0 == direction).map(|cut| cut.1);
        let cuts = cuts.clone();
        thread::spawn(move || {
            if pump(&mut from, &mut to, limit) {
                cuts.fetch_add(1, Ordering::SeqCst);
                for end in [&from, &to] {
                    // The other side may have closed it already.
                    let _: std::io::Result<()> = end.shutdown(Shutdown::Both);
                }
            } else {
                let _: std::io::Result<()> = to.shutdown(Shutdown::Write);
            }
        });
    }
}

/// Forwards bytes up to a limit. Returns whether it was reached.
fn pump(from: &mut UnixStream, to: &mut UnixStream, limit: Option<usize>) -> bool {
    let mut left = limit.unwrap_or(usize::MAX);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(len @ 1..) = from.read(&mut buffer) else {
            return false;
        };
        let forwarded = len.min(left);
        if to.write_all(&buffer[..forwarded]).is_err() {
            return false;
        }
        left -= forwarded;
        if left == 0 {
            return true;
        }
    }
}
