//! Clients that push at the same time, or against each other.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{IntoStore, has};
use crate::serve_logins::bearer;
use crate::serve_receive::uploads::{hash, nar, narinfo, part};

#[test]
fn clients_do_not_disturb_each_other() {
    let store = IntoStore::start(&["--receive-no-check-sigs", "--receive-max-size", "1M"]);
    let receiving = &store.receiving;
    let (one, other) = (nar("one"), nar("other"));
    let file = |nar: &[u8]| format!("/nar/{}.nar", hash(nar));
    let put = |letter: &str, narinfo: &str| {
        let target = format!("/{}.narinfo", part(letter));
        let response = receiving.put(&target, narinfo.as_bytes());
        (response.status, response.text().to_owned())
    };
    let refused = |letter: &str, narinfo: &str, (status, reason): (u16, &str)| {
        let (found, text) = put(letter, narinfo);
        assert_eq!(found, status, "{text}");
        assert!(text.contains(reason) && text.len() < 1000, "{text}");
    };
    receiving.put(&file(&one), &one);
    assert_eq!(put("a", &narinfo("a", "web", &one, "")).0, 201);
    // Another name with the same hash part would hide the path.
    receiving.put(&file(&other), &other);
    refused(
        "a",
        &narinfo("a", "evil", &other, ""),
        (409, "another name"),
    );
    // The description of a valid path does not use up the file of another client.
    let foreign = narinfo("a", "web", &one, "").replacen(
        &format!("URL: nar/{}.nar", hash(&one)),
        &format!("URL: nar/{}.nar", hash(&other)),
        1,
    );
    assert_eq!(put("a", &foreign).0, 201);
    assert_eq!(receiving.get(&file(&other)).status, 200);
    assert_eq!(put("b", &narinfo("b", "x", &other, "")).0, 201);
    // A small file may decode to a large NAR.
    let large = narinfo("c", "x", &other, "")
        .replace(&format!("NarSize: {}", other.len()), "NarSize: 2000000");
    refused("c", &large, (413, "larger than 1.0 MiB"));
    receiving.put(&file(&one), &one);
    refused("c", &narinfo("c", "x.drv", &one, ""), (400, "derivation"));
    // Refused paths leave no temporary roots.
    let roots = || -> u64 {
        let files = fs::read_dir(store.root.join("nix/var/nix/temproots")).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let before = roots();
    let many: Vec<String> = (0..10_000)
        .map(|number| format!("{number:032}-x"))
        .collect();
    refused(
        "c",
        &narinfo("c", "x", &one, &many.join(" ")),
        (409, "push them first"),
    );
    assert_eq!(roots(), before);
    assert_eq!(store.receiving.server.stop(), "");
}

/// Of clients that push the same path at the same moment, none is refused.
#[test]
fn clients_of_the_same_path_all_succeed() {
    let store = IntoStore::start(&["--receive-no-check-sigs"]);
    let receiving = &store.receiving;
    for round in 0..20 {
        let nar = nar(&format!("round {round}"));
        let digits = format!("{round:032}");
        let text = narinfo("0", "x", &nar, "").replace(&part("0"), &digits);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    receiving.put(&format!("/nar/{}.nar", hash(&nar)), &nar);
                    let target = format!("/{digits}.narinfo");
                    let response = receiving.put(&target, text.as_bytes());
                    assert_eq!(response.status, 201, "{}", response.text());
                });
            }
        });
    }
    store.verify();
    assert_eq!(store.receiving.server.stop(), "");
}

/// A client that pushes a valid path while a collection runs does not keep others waiting.
#[test]
fn collections_delay_no_uploads() {
    let store = IntoStore::start(&["--receive-no-check-sigs"]);
    let receiving = &store.receiving;
    let put = |letter: &str| {
        let nar = nar(letter);
        receiving.put(&format!("/nar/{}.nar", hash(&nar)), &nar);
        let target = format!("/{}.narinfo", part(letter));
        let text = narinfo(letter, "x", &nar, "");
        assert_eq!(receiving.put(&target, text.as_bytes()).status, 201);
    };
    put("a");
    // A collector of Nix holds this lock, and replies to each root.
    let state = store.root.join("nix/var/nix");
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(state.join("gc.lock"));
    let lock = lock.unwrap();
    lock.lock().unwrap();
    fs::create_dir_all(state.join("gc-socket")).unwrap();
    let socket = state.join("gc-socket/socket");
    let _: std::io::Result<()> = fs::remove_file(&socket);
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let count = count.clone();
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).split(b'\n');
                while let Some(Ok(_)) = lines.next() {
                    count.fetch_add(1, Ordering::Relaxed);
                    if (&stream).write_all(b"1").is_err() {
                        break;
                    }
                }
            });
        }
    });
    let began = Instant::now();
    for _ in 0..20 {
        put("a");
    }
    put("b");
    put("c");
    assert!(
        asked.load(Ordering::Relaxed) > 0,
        "no root reached the collector"
    );
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    drop(lock);
    store.verify();
}

/// Another process holds the lock of a path as long as it builds the path.
#[test]
fn locked_paths_keep_no_worker_and_no_stop() {
    let store = IntoStore::start(&["--receive-no-check-sigs"]);
    let receiving = &store.receiving;
    let contents = nar("one");
    let nar_target = format!("/nar/{}.nar", hash(&contents));
    assert_eq!(receiving.put(&nar_target, &contents).status, 201);
    let name = format!("{}-web", part("a"));
    let lock = store.root.join(format!("nix/store/{name}.lock"));
    let lock = File::create(lock).unwrap();
    lock.lock().unwrap();
    let target = format!("/{}.narinfo", part("a"));
    let text = narinfo("a", "web", &contents, "");
    let began = Instant::now();
    thread::scope(|scope| {
        // More than there are workers.
        for _ in 0..16 {
            let (target, text) = (&target, &text);
            scope.spawn(move || {
                let busy = receiving.put(target, text.as_bytes());
                assert_eq!(busy.status, 503, "{}", busy.text());
                assert!(busy.text().contains("another process builds or adds it"));
            });
        }
        // Nothing shows that the workers wait for the lock.
        thread::sleep(Duration::from_secs(1));
        let other = nar("other");
        let nar_target = format!("/nar/{}.nar", hash(&other));
        assert_eq!(receiving.put(&nar_target, &other).status, 201);
        let text = narinfo("b", "web", &other, "");
        let target = format!("/{}.narinfo", part("b"));
        assert_eq!(receiving.put(&target, text.as_bytes()).status, 201);
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "the other path waits"
        );
    });
    assert!(began.elapsed() >= Duration::from_secs(20));
    let began = Instant::now();
    let fields = format!(
        "{}Content-Length: {}\r\n",
        bearer(&receiving.token),
        text.len()
    );
    let request = format!("PUT {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n{text}");
    let mut client = receiving.server.connect();
    client.send(request.as_bytes());
    // Nothing shows that the worker waits for the lock.
    thread::sleep(Duration::from_secs(1));
    store.receiving.server.stop();
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(!has(&store.root, &name));
    let left = fs::read_dir(store.root.join("nix/store")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().display().to_string());
    let left: Vec<String> = left.filter(|it| it.contains(&part("a"))).collect();
    assert_eq!(left, [format!("{name}.lock")]);
}
