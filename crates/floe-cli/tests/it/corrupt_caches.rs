//! Installs from corrupt or malicious caches. No wrong path is registered, correct paths are kept,
//! and the error names the fault and its location.

mod content_addresses;
mod redirects;
mod resumed_transfers;
pub(crate) mod transfers;

use std::fs;

use floe_format::{Compression, Hash, NarInfo, PathInfo, SecretKey, StoreDir, StorePath};
use floe_testkit::fault_server::FaultServer;
use floe_testkit::{nixes, run, scratch};

use crate::faulty_cache::{assert_verified, faulty_cache};
use crate::support::floe;

/// Returns a hash that no NAR of the corpus has.
fn other_hash() -> Hash {
    Hash::sha256(floe_hash::sha256(b"other"))
}

#[test]
fn flipped_byte_is_detected_with_every_compression() {
    for compression in ["none", "zstd", "xz"] {
        let Some(cache) = faulty_cache(compression) else {
            return;
        };
        let path = cache.path("libonig5");
        let nar = cache.nar(&path);
        let mut bytes = fs::read(&nar).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&nar, &bytes).unwrap();
        let file = nar.display().to_string();
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &[path.as_str(), &file]);
        // FileHash and FileSize are optional, but the NAR is always verified.
        cache.edit(&path, |narinfo| {
            (narinfo.file_hash, narinfo.file_size) = (None, None)
        });
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &[path.as_str()]);
    }
}

/// No signature covers the file hash, and the NAR hash finds each damage of the contents.
#[test]
fn file_hash_is_compared_on_demand() {
    for compression in ["none", "zstd"] {
        let Some(cache) = faulty_cache(compression) else {
            return;
        };
        let path = cache.path("libonig5");
        cache.edit(&path, |narinfo| narinfo.file_hash = Some(other_hash()));
        let mut command = floe(["install", "--check-file-hash", "--from", &cache.file_url()]);
        command.args(["--trusted-public-keys", &cache.corpus.key, "--root"]);
        command.arg(&cache.root).arg(path.as_str());
        let rejected = run(&mut command).expect(3);
        rejected.stderr_contains("the file hash is");
        if compression == "zstd" {
            cache.install(&cache.file_url()).expect(0);
            assert_verified(&cache.root, cache.corpus.paths.len());
        } else {
            // The NAR hash is that of the file, and costs nothing.
            let rejected = cache.install(&cache.file_url()).expect(3);
            rejected.stderr_contains("the file hash is");
        }
    }
}

#[test]
fn body_of_another_compression_is_named() {
    let page = b"<!DOCTYPE html>\n<html></html>\n";
    for (files, named, body, says) in [
        (
            "zstd",
            Compression::None,
            None,
            "as none: the body begins like zstd",
        ),
        (
            "none",
            Compression::Xz,
            None,
            "as xz: the body begins like a NAR without compression",
        ),
        (
            "xz",
            Compression::Zstd,
            None,
            "as zstd: the body begins like xz",
        ),
        (
            "none",
            Compression::None,
            Some(page),
            "the body begins like a web page",
        ),
    ] {
        let Some(cache) = faulty_cache(files) else {
            return;
        };
        let path = cache.path("libonig5");
        if let Some(body) = body {
            fs::write(cache.nar(&path), body).unwrap();
        }
        cache.edit(&path, |narinfo| {
            (narinfo.file_hash, narinfo.file_size) = (None, None);
            narinfo.compression = named;
        });
        let url = cache.file_url();
        cache.assert_install_fails_for(&url, &[&path], 3, &[path.as_str(), &url, says]);
    }
}

#[test]
fn nar_of_another_path_is_rejected() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let other = cache.narinfo(&cache.path("libgcc"));
    fs::copy(cache.nar(&cache.path("libgcc")), cache.nar(&path)).unwrap();
    let says = ["the NAR size is 127696, not 658144"];
    cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &says);
    // With matching URL, FileHash and FileSize, so that only the NAR differs.
    cache.edit(&path, |narinfo| {
        narinfo.url = other.url;
        narinfo.file_hash = other.file_hash;
        narinfo.file_size = other.file_size;
    });
    cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &says);
}

#[test]
fn info_rejects_narinfo_of_another_hash_part() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (path, other) = (cache.path("libonig5"), cache.path("libgcc"));
    let file = |path: &StorePath| cache.cache.join(format!("{}.narinfo", path.hash_part()));
    let info = || {
        let part = path.hash_part();
        run(&mut floe([
            "info",
            "--from",
            &cache.file_url(),
            part.as_str(),
        ]))
    };
    assert!(info().expect(0).stdout.contains(path.as_str()));
    fs::copy(file(&other), file(&path)).unwrap();
    assert!(info().expect(1).stderr.contains("cannot find"));
}

#[test]
fn forged_or_missing_signature_is_rejected() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    // A key of the attacker with the name of the trusted key.
    let forger = SecretKey::from_seed(cache.key.name(), [7; 32]).unwrap();
    cache.edit(&path, |narinfo| {
        narinfo.info.signatures.clear();
        narinfo.info.sign(&StoreDir::default(), &forger);
    });
    let says = ["cannot trust", "its signature by corpus-1 does not fit"];
    cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &says);
    cache.edit(&path, |narinfo| narinfo.info.signatures.clear());
    let says = ["cannot trust", "it has no signature"];
    cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &says);
    // One valid signature is sufficient.
    cache.edit(&path, |narinfo| {
        narinfo.info.sign(&StoreDir::default(), &forger);
        narinfo.info.sign(&StoreDir::default(), &cache.key);
    });
    cache.install(&cache.file_url()).expect(0);
}

#[test]
fn cache_with_trusted_parameter_needs_no_signature() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    cache.edit(&path, |narinfo| narinfo.info.signatures.clear());
    let server = FaultServer::start(&cache.cache);
    for url in [cache.file_url(), server.url()] {
        let says = ["it has no signature"];
        cache.assert_install_fails_for(&format!("{url}?trusted=false"), &[&path], 3, &says);
        let root = scratch();
        let install = |url: &str| {
            let mut command = floe(["install", "--from", url, "--root"]);
            command.arg(root.path()).arg("--trusted-public-keys");
            run(command.arg(&cache.corpus.key).arg(&cache.corpus.root))
        };
        install(&format!("{url}?trusted=true")).expect(0);
        for nix in nixes() {
            let root = scratch();
            let mut realise = nix.command("nix-store", ["--store"]);
            realise.arg(root.path()).args(["-r", &cache.corpus.root]);
            realise.args(["--option", "trusted-public-keys", &cache.corpus.key]);
            realise.args(["--option", "substituters"]);
            run(realise.arg(format!("{url}?trusted=true"))).expect(0);
        }
    }
}

#[test]
fn signature_covers_path_hash_size_and_references() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let untouched = cache.narinfo(&path);
    let assert_untrusted = |what: &str, edit: &dyn Fn(&mut PathInfo)| {
        cache.edit(&path, |narinfo| edit(&mut narinfo.info));
        eprintln!("changed: {what}");
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &["cannot trust"]);
        cache.write(&path, &untouched.to_text(&StoreDir::default()));
    };
    assert_untrusted("NarHash", &|info| info.nar_hash = other_hash());
    assert_untrusted("NarSize", &|info| info.nar_size += 8);
    assert_untrusted("a reference less", &|info| info.references.clear());
    let gcc = cache.path("gcc");
    assert_untrusted("a reference more", &|info| {
        info.references.insert(gcc.clone());
    });
    // The path itself: its name, which is not part of the file name, and its hash part.
    let renamed = StorePath::parse(&format!("{}-renamed", path.hash_part())).unwrap();
    for other in [renamed, cache.path("libgcc")] {
        cache.edit(&path, |narinfo| narinfo.info.path = other.clone());
        let says = [format!("is for {other}, not for {path}")];
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &[&says[0]]);
        cache.write(&path, &untouched.to_text(&StoreDir::default()));
    }
}

#[test]
fn validly_signed_narinfo_is_still_verified() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let untouched = cache.narinfo(&path);
    let assert_rejected = |says: &str, edit: &dyn Fn(&mut NarInfo)| {
        cache.edit_signed(&path, edit);
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &[says]);
        cache.write(&path, &untouched.to_text(&StoreDir::default()));
    };
    assert_rejected("the file size is", &|narinfo| {
        narinfo.file_size = Some(243_563)
    });
    assert_rejected("the file size is", &|narinfo| {
        narinfo.file_size = Some(243_561)
    });
    assert_rejected("the NAR hash is", &|narinfo| {
        narinfo.info.nar_hash = other_hash()
    });
    assert_rejected("the NAR size is 658144, not", &|narinfo| {
        narinfo.info.nar_size += 1
    });
    assert_rejected("the NAR size is more than 658143", &|narinfo| {
        narinfo.info.nar_size -= 1
    });
    // Values at which additions and multiplications overflow.
    for file_size in [None, Some(u64::MAX)] {
        assert_rejected("size is", &|narinfo| {
            narinfo.info.nar_size = u64::MAX;
            narinfo.file_size = file_size;
        });
    }
}

#[test]
fn invalid_or_foreign_narinfo_is_rejected_by_name() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let text = cache.narinfo(&path).to_text(&StoreDir::default());
    let file = format!("{}.narinfo", path.hash_part());
    for (wrong, says) in [
        (
            "\n<html>no such file</html>\n".to_owned(),
            "a web page came instead",
        ),
        (text.trim_end().to_owned(), "does not end in a newline"),
        (
            text.replace("NarHash: sha256:", "NarHash: sha256:e"),
            "field NarHash",
        ),
        (text.replace("NarSize", "Size"), "NarSize is missing"),
        (
            text.replace("References: ", "References: ../../etc/passwd "),
            "field References",
        ),
        (
            text.replace("Compression: zstd", "Compression: zpaq"),
            "\"zpaq\"",
        ),
        (
            fs::read_to_string(cache.cache.join("nix-cache-info")).unwrap(),
            "StorePath is missing",
        ),
    ] {
        assert_ne!(wrong, text, "{says}: the replacement changed nothing");
        cache.write(&path, &wrong);
        cache.assert_install_fails_for(
            &cache.file_url(),
            &[&path],
            3,
            &["the narinfo", &file, says],
        );
    }
    let other = cache.narinfo(&cache.path("libgcc"));
    cache.write(&path, &other.to_text(&StoreDir::default()));
    cache.assert_install_fails_for(
        &cache.file_url(),
        &[&path],
        3,
        &["is for", other.info.path.as_str(), &file],
    );
}

#[test]
fn unknown_compression_is_named() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    cache.edit(&path, |narinfo| {
        narinfo.compression = Compression::Unsupported("lrzip");
    });
    cache.assert_install_fails_for(
        &cache.file_url(),
        &[&path],
        1,
        &["does not support the compression lrzip"],
    );
}

#[test]
fn missing_nar_or_nar_outside_the_cache_is_rejected() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let nar = cache.nar(&path);
    let outside = cache.scratch.join("outside.nar.zst");
    fs::rename(&nar, &outside).unwrap();
    cache.assert_install_fails_for(
        &cache.file_url(),
        &[&path],
        4,
        &["open the NAR", "No such file"],
    );
    // The file is correct, but a narinfo must not name files outside the cache.
    for url in [
        "../outside.nar.zst".to_owned(),
        format!("file://{}", outside.display()),
    ] {
        cache.edit(&path, |narinfo| narinfo.url = url);
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &["leads out of the cache"]);
    }
}

#[test]
fn missing_reference_fails_its_referrers() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let absent = StorePath::parse("00000000000000000000000000000000-absent").unwrap();
    cache.edit_signed(&path, |narinfo| {
        narinfo.info.references.insert(absent.clone());
    });
    let says = ["absent in file://", "3 other paths need them"];
    cache.assert_install_fails_for(&cache.file_url(), &[&path], 1, &says);
}

#[test]
fn reference_cycle_is_rejected() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (path, referrer) = (cache.path("libonig5"), cache.path("libjq1"));
    cache.edit_signed(&path, |narinfo| {
        narinfo.info.references.insert(referrer.clone());
    });
    cache.assert_install_fails_for(
        &cache.file_url(),
        &[&path],
        1,
        &["its references are missing"],
    );
}

#[test]
fn directory_without_cache_info_or_with_other_store_dir_fails() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let info = cache.cache.join("nix-cache-info");
    let install = || {
        run(floe(["install", "--from", &cache.file_url(), "--root"])
            .arg(&cache.root)
            .arg(&cache.corpus.root))
    };
    fs::write(&info, "StoreDir: /gnu/store\n").unwrap();
    install()
        .expect(2)
        .stderr_contains("its paths are for /gnu/store")
        .stderr_contains("--store-dir /gnu/store");
    fs::remove_file(&info).unwrap();
    install()
        .expect(4)
        .stderr_contains("as a binary cache: it has no valid nix-cache-info");
    let store = cache.root.join("nix/store");
    assert!(
        !store.exists() || fs::read_dir(&store).unwrap().count() == 1,
        "the store directory is not empty"
    );
}
