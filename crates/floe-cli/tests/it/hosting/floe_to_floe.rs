//! floe at both ends of a connection: the bytes are compressed, and a closure comes at once.

use std::fs;

use floe_format::StoreDir;
use floe_testkit::wait_until;
use floe_wire::worker::{CLOSURE_LEN_MAX, Request};

use super::interruptions::script;
use super::*;

/// A copy with the bytes of all its connections in both directions.
struct Recorded {
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// Copies the corpus to or from the hosted store over a connection that is recorded.
fn record(host: &Host<'_>, compression: &str, direction: (&str, &str)) -> Recorded {
    let directory = floe_testkit::scratch();
    let line = format!(
        "cd {}; tee sent$$ | {} \"$@\" | tee received$$; touch end$$",
        directory.path().display(),
        host.program("nix-daemon").display(),
    );
    let recorder = script(host, "recorder", &line);
    let uri = format!(
        "ssh-ng://localhost?compression={compression}&remote-program={}&remote-store={}",
        recorder.display(),
        host.root().display()
    );
    let name = |end: &str| end.replace("HOST", &uri);
    let words = ["copy", "--no-check-sigs", "--from", &name(direction.0)];
    run(floe(words).args(["--to", &name(direction.1), &host.corpus.root])).expect(0);
    let names = |prefix: &str| {
        let entries = fs::read_dir(directory.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_wanted = |path: &PathBuf| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(prefix)
        };
        paths.filter(is_wanted).collect::<Vec<PathBuf>>()
    };
    // A program may end after its client.
    wait_until("the programs have not ended", || {
        names("sent").len() == names("end").len()
    });
    let bytes = |prefix| {
        names(prefix)
            .iter()
            .flat_map(|path| fs::read(path).unwrap())
            .collect()
    };
    Recorded {
        sent: bytes("sent"),
        received: bytes("received"),
    }
}

/// Returns how often a request is sent, without its arguments.
fn count(recorded: &Recorded, request: &Request) -> usize {
    let mut bytes = Vec::new();
    assert!(request.write(&mut bytes, &StoreDir::default()));
    let words = recorded.sent.chunks_exact(8);
    words.filter(|word| *word == &bytes[..8]).count()
}

#[test]
fn bytes_of_both_directions_are_compressed() {
    with_hosts(|host| {
        let store = host.corpus.store().display().to_string();
        let plain = record(host, "none", (&store, "HOST"));
        host.check_store(&host.root());
        floe_store::tree::remove_tree(&host.root()).unwrap();
        let packed = record(host, "zstd", (&store, "HOST"));
        host.check_store(&host.root());
        assert!(
            packed.sent.len() < plain.sent.len() / 2,
            "{} of {} bytes",
            packed.sent.len(),
            plain.sent.len()
        );
        for (compression, whole) in [("none", plain.sent.len()), ("zstd", packed.sent.len())] {
            let back = host.scratch.join(&format!("back-{compression}"));
            let fetched = record(host, compression, ("HOST", back.to_str().unwrap()));
            host.check_store(&back);
            let len = fetched.received.len();
            assert!(len > whole / 2 && len < whole * 2, "{len} of {whole} bytes");
        }
    });
}

#[test]
fn metadata_of_a_closure_is_one_reply() {
    with_hosts(|host| {
        let store = host.corpus.store().display().to_string();
        record(host, "none", (&store, "HOST"));
        let back = host.scratch.join("back");
        let fetched = record(host, "none", ("HOST", back.to_str().unwrap()));
        host.check_store(&back);
        let path = StoreDir::default().parse(&host.corpus.root).unwrap();
        assert!(host.corpus.paths.len() > 2);
        // floe may know already that the other side is floe.
        assert!(count(&fetched, &Request::QueryPathInfo(path.clone())) <= 1);
        let closure = Request::QueryClosureInfos([path.clone()].into());
        assert_eq!(count(&fetched, &closure), 1);
        let nar = count(&fetched, &Request::NarFromPath(path));
        assert_eq!(nar, host.corpus.paths.len());
    });
}

#[test]
fn closure_too_large_for_one_reply_is_queried_by_paths() {
    with_hosts(|host| {
        if host.nix.is_2_8() {
            // The size does not depend on the program that makes the store.
            return;
        }
        let store = host.corpus.store().display().to_string();
        run(host
            .nix_copy(&store, host.root().to_str().unwrap())
            .arg("--no-check-sigs"))
        .expect(0);
        let database = host.root().join("nix/var/nix/db/db.sqlite");
        let connection = rusqlite::Connection::open(database).unwrap();
        let hash = format!("sha256:{}", "0".repeat(64));
        let add = "with recursive numbers(n) as
                       (select 1 union all select n + 1 from numbers where n < ?1)
                   insert into ValidPaths(path, hash, registrationTime, narSize)
                       select '/nix/store/' || printf('%032d', n) || '-x', ?2, 1, 1000
                       from numbers";
        let count = i64::try_from(CLOSURE_LEN_MAX).unwrap();
        connection.execute(add, (count, &hash)).unwrap();
        let refer =
            "insert into Refs select root.id, other.id from ValidPaths root, ValidPaths other
                     where root.path = ?1 and other.path like '%-x'";
        connection.execute(refer, [&host.corpus.root]).unwrap();
        let uri = host.uri("ssh-ng", "nix-daemon");
        let back = host.scratch.join("back").display().to_string();
        let words = [
            "copy",
            "--dry-run",
            "--no-check-sigs",
            "--from",
            &uri,
            "--to",
            &back,
        ];
        let expected = format!("{} paths", CLOSURE_LEN_MAX + host.corpus.paths.len());
        run(floe(words).arg(&host.corpus.root))
            .expect(0)
            .stderr_contains(&expected);
    });
}
