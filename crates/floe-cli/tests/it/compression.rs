//! Caches written by other tools, with every compression and stream layout.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use floe_format::{Compression, Hash, StoreDir};
use floe_testkit::{corpus, nixes, run, scratch, skip, tree};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

#[test]
fn caches_written_by_nix_install_with_every_compression() {
    let Some(corpus) = corpus("jq") else { return };
    // Use a small part of the closure, because Nix compresses on one core.
    let top = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libgcc-s1-"))
        .unwrap();
    let expected: Vec<String> = tree(&corpus.store())
        .into_iter()
        .filter(|line| line.contains("-libgcc-s1-") || line.contains("-gcc-12-base-"))
        .collect();
    for nix in nixes() {
        for compression in ["none", "xz", "zstd", "bzip2", "gzip", "br", "lzma", "lz4"] {
            let scratch = scratch();
            let cache = format!("file://{}", scratch.join("cache").display());
            let to = format!("{cache}?compression={compression}");
            let copy = [
                "copy",
                "--no-check-sigs",
                "--from",
                &corpus.file_url("none"),
                "--to",
                &to,
            ];
            run(nix.command("nix", copy).arg(top)).expect(0);
            let narinfo = format!("cache/{}.narinfo", &top["/nix/store/".len()..][..32]);
            let narinfo = fs::read_to_string(scratch.join(&narinfo)).unwrap();
            assert!(
                narinfo.contains(&format!("Compression: {compression}\n")),
                "{narinfo}"
            );
            let root = scratch.join("root");
            run(floe([
                "install",
                "--from",
                &cache,
                "--trusted-public-keys",
                &corpus.key,
            ])
            .arg("--root")
            .arg(&root)
            .arg(top))
            .expect(0);
            assert!(
                tree(&root) == expected,
                "{} {compression}: the trees differ",
                nix.version
            );
        }
    }
}

#[test]
fn concatenated_compressed_streams_are_read_to_their_end() {
    for (tool, compression, args) in [
        (
            "xz",
            Compression::Xz,
            &["--threads=2", "--block-size=65536"][..],
        ),
        ("zstd", Compression::Zstd, &["--quiet"]),
        ("gzip", Compression::Gzip, &[]),
    ] {
        let Some(cache) = faulty_cache("none") else {
            return;
        };
        if !Path::new("/usr/bin").join(tool).exists() {
            skip(tool, "not installed; run `cargo xtask test` as root");
            continue;
        }
        let path = cache.path("libonig5");
        let nar = fs::read(cache.nar(&path)).unwrap();
        let mut body = Vec::new();
        // Concatenate three streams. The second one is empty.
        for part in [&nar[..100_000], &[], &nar[100_000..]] {
            let file = cache.scratch.join("part");
            fs::write(&file, part).unwrap();
            let output = Command::new(tool)
                .args(args)
                .arg("-c")
                .arg(&file)
                .output()
                .unwrap();
            assert!(output.status.success(), "{tool}: {output:?}");
            body.extend(output.stdout);
        }
        let url = "nar/streams".to_owned();
        fs::write(cache.cache.join(&url), &body).unwrap();
        cache.edit(&path, |narinfo| {
            (narinfo.url, narinfo.compression) = (url, compression);
            narinfo.file_hash = Some(Hash::sha256(floe_hash::sha256(&body)));
            narinfo.file_size = Some(body.len() as u64);
        });
        cache.install(&cache.file_url()).expect(0);
        assert!(
            tree(&cache.root) == tree(&cache.corpus.store()),
            "{tool}: the trees differ"
        );
    }
}

/// Recompresses every NAR of a cache by zstd with this `window_log`.
fn recompress(cache: &FaultyCache, bits: u32) {
    for path in &cache.corpus.paths {
        let path = StoreDir::default().parse(path).unwrap();
        let file = cache.nar(&path);
        let nar = zstd::decode_all(&*fs::read(&file).unwrap()).unwrap();
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(bits).unwrap();
        encoder.write_all(&nar).unwrap();
        fs::write(&file, encoder.finish().unwrap()).unwrap();
        cache.edit(&path, |narinfo| {
            (narinfo.file_hash, narinfo.file_size) = (None, None);
        });
    }
}

#[test]
fn zstd_windows_up_to_128_mib_are_accepted() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let install = |root: &Path| {
        let mut command = floe(["install", "--jobs", "4", "--from", &cache.file_url()]);
        command.args(["--trusted-public-keys", &cache.corpus.key, "--root"]);
        run(command.arg(root).arg(&cache.corpus.root))
    };
    recompress(&cache, 27);
    install(&cache.root).expect(0);
    assert_verified(&cache.root, cache.corpus.paths.len());
    let original = faulty_cache("zstd").unwrap();
    recompress(&original, 28);
    let rejected = original.install(&original.file_url()).expect(3);
    assert!(
        rejected.stderr.contains("cannot decompress"),
        "{}",
        rejected.stderr
    );
}

/// As Nix 2.35, floe writes independent frames, which several cores compress.
#[test]
fn large_path_becomes_frames_that_nix_reads() {
    for nix in nixes() {
        let scratch = scratch();
        let file = scratch.join("large");
        let contents: Vec<u8> = (0..10_000_000_u32)
            .flat_map(|number| (number / 3).to_le_bytes())
            .collect();
        fs::write(&file, &contents).unwrap();
        let (store, back) = (scratch.join("store"), scratch.join("back"));
        let add = ["store", "add-file", "--store", store.to_str().unwrap()];
        let added = run(nix.command("nix", add).arg(&file)).expect(0);
        let path = added.stdout.trim();
        let files = ["true", "false"].map(|parallel| {
            let cache = scratch.join(&format!("cache-{parallel}"));
            let uri = format!("file://{}", cache.display());
            let to = format!("{uri}?compression=zstd&parallel-compression={parallel}");
            let push = [
                "push",
                "--store",
                store.to_str().unwrap(),
                "--to",
                &to,
                path,
            ];
            run(&mut floe(push)).expect(0);
            let _ = floe_store::tree::remove_tree(&back);
            let copy = ["copy", "--no-check-sigs", "--from", &uri, "--to"];
            run(nix.command("nix", copy).arg(&back).arg(path)).expect(0);
            nix.verify(&back, 1);
            assert!(fs::read(back.join(&path[1..])).unwrap() == contents);
            let mut nars = fs::read_dir(cache.join("nar")).unwrap();
            let nar = nars.next().unwrap().unwrap().path();
            assert!(nars.next().is_none());
            fs::read(nar).unwrap()
        });
        assert!(files[0] == files[1]);
        // The magic number of a frame (RFC 8878, section 3.1.1).
        let starts = files[0]
            .windows(4)
            .filter(|it| *it == [0x28, 0xb5, 0x2f, 0xfd]);
        assert_eq!(starts.count(), 3);
    }
}
