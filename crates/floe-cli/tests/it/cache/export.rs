//! `floe cache export` and `floe cache import`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use floe_testkit::{Corpus, Nix, corpus, nixes, run, scratch};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use super::{cache, field, path_like};
use crate::push::{key, source_root};
use crate::support::floe;

fn export(corpus: &Corpus, uri: &str, more: &[&str]) -> Command {
    let mut export = floe(["cache", "export", uri, &corpus.root]);
    export
        .args(["--trusted-public-keys", &corpus.key])
        .args(more);
    export
}

/// Runs `nix-store` in a store.
fn nix_store(nix: &Nix, root: &Path, args: &[&str]) -> Command {
    let store = format!("local?root={}", root.display());
    let mut command = nix.command("nix-store", ["--store", &store]);
    command.args(args);
    command
}

#[test]
fn nix_imports_what_floe_exports() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let file = scratch.join("jq.export");
        let shown = file.display().to_string();
        let more = ["--json", "--output-file", &shown];
        let exported = run(&mut export(&corpus, &corpus.file_url("zstd"), &more)).expect(0);
        assert_eq!(exported.json()["paths"], corpus.paths.len());
        let root = scratch.join("root");
        let mut import = nix_store(&nix, &root, &["--import"]);
        run(import.stdin(File::open(&file).unwrap())).expect(0);
        nix.verify(&root, corpus.paths.len());
        // The same on a pipe.
        let mut piped = export(&corpus, &corpus.file_url("xz"), &[]);
        let mut piped = piped.stdout(Stdio::piped()).spawn().unwrap();
        let other = scratch.join("other");
        let mut import = nix_store(&nix, &other, &["--import"]);
        run(import.stdin(piped.stdout.take().unwrap())).expect(0);
        assert!(piped.wait().unwrap().success());
        nix.verify(&other, corpus.paths.len());
    }
}

#[test]
fn floe_imports_what_nix_exports() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let (secret, public) = key(&scratch);
        let file = scratch.join("jq.export");
        let mut closure = vec!["--export"];
        closure.extend(corpus.paths.iter().map(String::as_str));
        let mut exporting = nix_store(&nix, &corpus.store(), &closure);
        run(exporting.stdout(File::create(&file).unwrap())).expect(0);
        for is_pipe in [false, true] {
            let directory = scratch.join(&format!("cache-{is_pipe}"));
            let uri = format!("file://{}", directory.display());
            let mut import = floe(["cache", "import", "--json", &uri]);
            import.args(["--secret-key-file", &secret]);
            if is_pipe {
                let mut cat = Command::new("cat");
                let mut cat = cat.arg(&file).stdout(Stdio::piped()).spawn().unwrap();
                import.stdin(cat.stdout.take().unwrap());
                run(&mut import).expect(0);
                assert!(cat.wait().unwrap().success());
            } else {
                run(import.arg(&file)).expect(0);
            }
            for path in &corpus.paths {
                let expected = field(&corpus.cache("zstd"), path, "NarHash");
                assert_eq!(field(&directory, path, "NarHash"), expected);
                let expected = field(&corpus.cache("zstd"), path, "References");
                assert_eq!(field(&directory, path, "References"), expected);
            }
            let root = scratch.join(&format!("root-{is_pipe}"));
            let mut copy = nix.command("nix", ["copy", "--from", &uri, "--to"]);
            copy.arg(&root).args(["--trusted-public-keys", &public]);
            run(copy.arg(&corpus.root)).expect(0);
            nix.verify(&root, corpus.paths.len());
        }
    }
}

#[test]
fn damaged_exports_are_refused() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let file = scratch.join("jq.export");
    let shown = file.display().to_string();
    let more = ["--output-file", &*shown];
    run(&mut export(&corpus, &corpus.file_url("zstd"), &more)).expect(0);
    let whole = fs::read(&file).unwrap();
    let directory = scratch.join("cache");
    let uri = format!("file://{}", directory.display());
    let mut wrong_nar = whole.clone();
    wrong_nar[40] ^= 1;
    let mut wrong_end = whole.clone();
    let magic = whole
        .windows(8)
        .position(|it| it == b"NIXE\0\0\0\0")
        .unwrap();
    wrong_end[magic] = b'X';
    let texts: [(&[u8], &str); 6] = [
        (&whole[..whole.len() - 8], "it ends after"),
        (&whole[..whole.len() / 2], "within a path"),
        (&[], "it ends after 0 bytes"),
        (
            b"not an export, but a text of some length",
            "the beginning of a path",
        ),
        (&wrong_nar, "the NAR after 8 bytes is damaged"),
        (&wrong_end, "the end of a NAR"),
    ];
    for (bytes, reason) in texts {
        fs::write(&file, bytes).unwrap();
        let refused = run(floe(["cache", "import", &uri]).arg(&file)).expect(3);
        refused.stderr_contains(reason);
        // From a pipe, too.
        let mut import = floe(["cache", "import", &uri]);
        import.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut importing = import.spawn().unwrap();
        // floe may end before it has read everything.
        let _ = importing.stdin.take().unwrap().write_all(bytes);
        assert_eq!(importing.wait().unwrap().code(), Some(3), "{reason}");
        assert!(!directory.exists(), "{reason}");
    }
    fs::write(&file, &whole).unwrap();
    run(floe(["cache", "import", &uri]).arg(&file)).expect(0);
    cache("verify", &uri, &["--contents"]).expect(0);
}

/// Nothing but whole and trusted paths leave a cache, because an export has no signatures.
#[test]
fn untrusted_and_damaged_paths_are_not_exported() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let directory = corpus.cache_copy("zstd", &scratch.join("cache"));
    let uri = format!("file://{}", directory.display());
    let file = scratch.join("jq.export");
    let shown = file.display().to_string();
    let args = [
        "cache",
        "export",
        &uri,
        &corpus.root,
        "--output-file",
        &shown,
    ];
    let refused = run(&mut floe(args)).expect(3);
    refused.stderr_contains("cannot trust");
    run(floe(args).arg("--no-check-sigs")).expect(0);
    fs::remove_file(&file).unwrap();

    let nar = directory.join(field(&directory, path_like(&corpus, "-libonig"), "URL"));
    let mut bytes = fs::read(&nar).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&nar, bytes).unwrap();
    let failed = run(&mut export(&corpus, &uri, &["--output-file", &shown])).expect(3);
    failed.stderr_contains("-libonig");
    let left = fs::read_dir(scratch.path()).unwrap();
    let left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["cache"]);
    // On a pipe, the end is missing.
    let piped = scratch.join("piped");
    let mut failed = export(&corpus, &uri, &[]);
    run(failed.stdout(File::create(&piped).unwrap())).expect(3);
    let other = format!("file://{}", scratch.join("other").display());
    run(floe(["cache", "import", &other]).arg(&piped)).expect(3);
}

/// Files that are no regular ones stay what they are, and a failure takes nothing away.
#[test]
fn places_of_exports_stay_what_they_are() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let uri = corpus.file_url("zstd");
    let [file, link, fifo] = ["file", "link", "fifo"].map(|name| scratch.join(name));
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&file, &link).unwrap();
    mkfifo(&fifo);
    let to = |place: &Path| ["--output-file".to_owned(), place.display().to_string()];
    run(export(&corpus, &uri, &[]).args(to(&link))).expect(0);
    assert!(link.is_symlink());
    let found = fs::metadata(&file).unwrap();
    assert!(found.len() > 1_000_000 && found.mode() & 0o777 == 0o600);
    let mut reading = Command::new("cat");
    let mut reading = reading.arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = reading.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| bytes)
    });
    run(export(&corpus, &uri, &[]).args(to(&fifo))).expect(0);
    assert!(reading.wait().unwrap().success());
    assert!(reader.join().unwrap().unwrap() == fs::read(&file).unwrap());
    run(export(&corpus, &uri, &[]).args(to(scratch.path())))
        .expect(1)
        .stderr_contains("it is a directory");

    let directory = corpus.cache_copy("none", &scratch.join("cache"));
    let leaf = path_like(&corpus, "-gcc-12-base");
    let nar = directory.join(field(&directory, leaf, "URL"));
    let mut bytes = fs::read(&nar).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&nar, bytes).unwrap();
    let uri = format!("file://{}", directory.display());
    let appended = scratch.join("appended");
    fs::write(&appended, "earlier contents").unwrap();
    let file = File::options().append(true).open(&appended).unwrap();
    run(export(&corpus, &uri, &[]).stdout(file)).expect(3);
    assert_eq!(fs::read_to_string(&appended).unwrap(), "earlier contents");
}

/// The first signal ends an import that waits for a pipe.
#[test]
fn waiting_import_is_interrupted() {
    let scratch = scratch();
    let fifo = scratch.join("fifo");
    mkfifo(&fifo);
    let uri = format!("file://{}", scratch.join("cache").display());
    for place in [Some(&fifo), None] {
        let mut import = floe(["cache", "import", &uri]);
        import.args(place).stdin(Stdio::piped());
        let mut importing = import.spawn().unwrap();
        let stdin = importing.stdin.take();
        // floe has begun to wait.
        std::thread::sleep(Duration::from_secs(1));
        kill_process(Pid::from_child(&importing), Signal::TERM).unwrap();
        let code = importing.wait().unwrap().code();
        assert_eq!(code, Some(130), "{place:?}");
        drop(stdin);
    }
    assert!(!scratch.join("cache").exists());
}

fn mkfifo(place: &Path) {
    mknodat(CWD, place, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn export_needs_a_place() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let uri = corpus.file_url("zstd");
    run(&mut export(&corpus, &uri, &["--json"]))
        .expect(2)
        .stderr_contains("add --output-file FILE");
    let absent = scratch.join("absent/file").display().to_string();
    run(&mut export(&corpus, &uri, &["--output-file", &absent]))
        .expect(1)
        .stderr_contains("cannot create");
    let store = source_root(&corpus);
    run(&mut floe(["cache", "export", &store, &corpus.root]))
        .expect(2)
        .stderr_contains("it is a store");
}
