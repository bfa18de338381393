//! Outputs of content-addressed derivations, with the realisations that tell their paths: Nix
//! builds them in one store, floe copies `X.drv^*`, and Nix uses the copies without a build.

mod build_trace;
mod refused;

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use floe_testkit::{Nix, Scratch, nixes, run, s3_server, scratch, wait_until};

use crate::live_store::realisations::EXPRESSION;
use crate::server_process::ServerProcess;
use crate::support::floe;

/// A store directory, and the store that is there at the moment.
struct Place<'a> {
    nix: &'a Nix,
    scratch: Scratch,
    /// The derivation of the product.
    drv: String,
    public_key: String,
}

impl<'a> Place<'a> {
    /// Makes a store in which Nix has built and signed the product.
    fn with_product(nix: &'a Nix) -> Place<'a> {
        let mut place = Place {
            nix,
            scratch: scratch(),
            drv: String::new(),
            public_key: String::new(),
        };
        fs::write(place.scratch.join("ca.nix"), EXPRESSION).unwrap();
        let keys = ["--generate-binary-cache-key", "key-1", "key", "key.pub"];
        run(&mut place.nix("nix-store", &keys, "")).expect(0);
        place.public_key = fs::read_to_string(place.scratch.join("key.pub")).unwrap();
        place.instantiate();
        let key = place.scratch.join("key");
        let signed = format!("secret-key-files = {}\n", key.display());
        let drv = place.drv.clone();
        run(&mut place.nix("nix-store", &["--realise", &drv], &signed)).expect(0);
        place
    }

    /// Evaluates the expression, which writes the derivations.
    fn instantiate(&mut self) {
        let printed = run(&mut self.nix("nix-instantiate", &["ca.nix"], "")).expect(0);
        // Some versions add the name of the output.
        let drv = printed.stdout.trim().split('!').next().unwrap();
        self.drv = drv.to_owned();
    }

    /// Moves the store away and makes a new one with nothing but the derivations.
    fn begin_new_store(&mut self) {
        for part in ["store", "var"] {
            let old = self.scratch.join(&format!("old-{part}"));
            fs::rename(self.dir().join(part), old).unwrap();
        }
        self.instantiate();
    }

    fn dir(&self) -> &Path {
        self.scratch.path()
    }

    fn cache(&self) -> String {
        format!("file://{}", self.scratch.join("cache").display())
    }

    fn outputs(&self) -> String {
        format!("{}^*", self.drv)
    }

    fn nix(&self, tool: &str, args: &[&str], settings: &str) -> Command {
        let mut all = format!("experimental-features = nix-command ca-derivations\n{settings}");
        // Some builds of the newest Nix cannot start themselves as their own build hook.
        if !self.nix.is_2_8() {
            all += "build-hook =\n";
        }
        let mut command = self.nix.command(tool, args);
        self.set_store(command.env("NIX_CONFIG", all));
        command
    }

    fn floe(&self, args: &[&str]) -> Command {
        let mut command = floe(args);
        self.set_store(&mut command);
        command
    }

    fn set_store(&self, command: &mut Command) {
        command
            .current_dir(self.dir())
            .env("NIX_STORE_DIR", self.dir().join("store"))
            .env("NIX_STATE_DIR", self.dir().join("var/nix"))
            .env("NIX_LOG_DIR", self.dir().join("var/log"));
    }

    /// Runs `nix build` of the product without builds of its own.
    fn build_without_builders(&self, substituter: &str, key: &str) -> Command {
        let settings =
            format!("max-jobs = 0\nsubstituters = {substituter}\ntrusted-public-keys = {key}\n");
        self.nix("nix-store", &["--realise", &self.drv], &settings)
    }

    /// Asserts that Nix would have to build the product.
    #[track_caller]
    fn assert_not_usable(&self, substituter: &str, key: &str) {
        let built = run(&mut self.build_without_builders(substituter, key));
        // The exit codes of versions differ.
        assert!(![None, Some(0)].contains(&built.code), "{}", built.stderr);
    }

    /// Asserts that Nix has the outputs of the product without a build.
    #[track_caller]
    fn assert_usable(&self, substituter: &str) {
        let key = self.public_key.trim();
        let built = run(&mut self.build_without_builders(substituter, key)).expect(0);
        let paths: Vec<&str> = built.stdout.lines().collect();
        assert_eq!(paths.len(), 2, "{}: {}", self.nix.version, built.stderr);
        for path in paths {
            assert!(PathBuf::from(path).is_file(), "{path}");
        }
        let verify = ["--verify", "--check-contents"];
        let verified = run(&mut self.nix("nix-store", &verify, "")).expect(0);
        assert!(!verified.stderr.contains("modified"), "{}", verified.stderr);
    }

    fn realisation_files(&self) -> Vec<PathBuf> {
        let directory = self.scratch.join("cache/realisations");
        let entries = fs::read_dir(directory).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

/// The paths are there, and a warning says what is missing.
#[test]
fn daemons_get_the_paths_alone() {
    for nix in nixes() {
        let place = Place::with_product(&nix);
        let socket = place.scratch.join("socket");
        let mut daemon = place.nix("nix-daemon", &[], "");
        daemon
            .env("NIX_DAEMON_SOCKET_PATH", &socket)
            .stderr(Stdio::null());
        let mut daemon = daemon.spawn().unwrap();
        wait_until("the daemon listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        let to = format!("unix://{}", socket.display());
        let outputs = place.outputs();
        let words = [
            "copy",
            "--no-check-sigs",
            "--from",
            "local",
            "--to",
            &to,
            &outputs,
        ];
        let copied = run(&mut place.floe(&words));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let copied = copied.expect(0).stderr_contains("leaving out ");
        assert_eq!(copied.stdout.lines().count(), 2);
    }
}

#[test]
fn nix_substitutes_outputs_that_floe_copied_to_a_cache() {
    for nix in &nixes() {
        let mut place = Place::with_product(nix);
        let copied = run(&mut place.floe(&["copy", "--to", &place.cache(), &place.outputs()]));
        assert_eq!(
            copied.expect(0).stdout.lines().count(),
            2,
            "{}",
            nix.version
        );
        // Those of Nix 2.8 depend on that of the tool.
        let count = if nix.is_2_8() { 3 } else { 2 };
        assert_eq!(place.realisation_files().len(), count, "{}", nix.version);
        place.begin_new_store();
        // Without substituters, Nix has to build.
        place.assert_not_usable("", "");
        place.assert_usable(&place.cache());
    }
}

#[test]
fn cache_of_floe_has_the_realisations_of_nix() {
    for nix in &nixes() {
        let place = Place::with_product(nix);
        run(&mut place.floe(&["push", "--to", &place.cache(), &place.outputs()])).expect(0);
        let theirs = format!("file://{}", place.scratch.join("theirs").display());
        let copy = ["copy", "-f", "ca.nix", "--to", &theirs];
        run(&mut place.nix("nix", &copy, "")).expect(0);
        let mut compared = 0;
        for entry in fs::read_dir(place.scratch.join("theirs/realisations")).unwrap() {
            let theirs = entry.unwrap().path();
            let name = theirs.file_name().unwrap();
            let ours = place.scratch.join("cache/realisations").join(name);
            let read = |path| fs::read_to_string(path).unwrap();
            assert_eq!(read(ours), read(theirs), "{}", nix.version);
            compared += 1;
        }
        assert!(compared > 0, "{}", nix.version);
    }
}

#[test]
fn nix_uses_outputs_that_floe_installed_from_a_cache() {
    for nix in &nixes() {
        let mut place = Place::with_product(nix);
        run(&mut place.floe(&["copy", "--to", &place.cache(), &place.outputs()])).expect(0);
        place.begin_new_store();
        let (cache, outputs) = (place.cache(), place.outputs());
        let key = place.public_key.trim();
        let trusted = ["--extra-trusted-public-keys", key];
        let install = [&["install", "--from", &cache, &outputs], &trusted[..]].concat();
        let installed = run(&mut place.floe(&install)).expect(0);
        assert_eq!(installed.stdout.lines().count(), 2);
        place.assert_usable("");
        // Another time, nothing changes.
        run(&mut place.floe(&install)).expect(0);
        place.assert_usable("");
    }
}

#[test]
fn nix_substitutes_outputs_from_floe_serve() {
    for nix in &nixes() {
        let mut place = Place::with_product(nix);
        let root = place.scratch.join("root");
        let store_dir = place.dir().join("store").display().to_string();
        let (outputs, key) = (place.outputs(), place.public_key.trim());
        let copy = [
            "copy",
            "--from",
            &format!(
                "local?store={store_dir}&state={}/var/nix",
                place.dir().display()
            ),
            "--to",
            &root.display().to_string(),
            "--store-dir",
            &store_dir,
            "--extra-trusted-public-keys",
            key,
            &outputs,
        ];
        run(&mut floe(copy)).expect(0);
        let serve = ServerProcess::start(&root, &["--store-dir", &store_dir]);
        place.begin_new_store();
        place.assert_usable(&serve.url());
        run(&mut place.floe(&["copy", "--to", &place.cache(), &place.outputs()])).expect(0);
        for file in place.realisation_files() {
            let name = file.file_name().unwrap().to_str().unwrap();
            let target = format!("/realisations/{name}");
            let response = serve.get(&target);
            assert_eq!(response.status, 200, "{target}");
            assert_eq!(response.body, fs::read(&file).unwrap(), "{target}");
            let head = serve.head(&target);
            assert_eq!((head.status, head.body.len()), (200, 0), "{target}");
        }
    }
}

#[test]
fn cache_in_a_bucket_gets_and_gives_realisations() {
    let Some(server) = s3_server("team") else {
        return;
    };
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let mut place = Place::with_product(nix);
        let uri = server.uri("team");
        let in_bucket = |place: &Place<'_>, args: &[&str]| {
            run(place.floe(args).envs(server.variables())).expect(0)
        };
        in_bucket(&place, &["copy", "--to", &uri, &place.outputs()]);
        place.begin_new_store();
        let (key, outputs) = (place.public_key.trim().to_owned(), place.outputs());
        let trusted = ["--extra-trusted-public-keys", &key];
        let copy = [&["copy", "--from", &uri, &outputs], &trusted[..]].concat();
        in_bucket(&place, &copy);
        place.assert_usable("");
    }
}

#[test]
fn selected_output_is_copied_alone() {
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let place = Place::with_product(nix);
        for (separator, output) in [("^", "doc"), ("!", "doc")] {
            let cache = place.scratch.join(&format!("cache-{}", separator.len()));
            let wanted = format!("{}{separator}{output}", place.drv);
            let to = format!("file://{}", cache.display());
            let copied = run(&mut place.floe(&["copy", "--to", &to, &wanted])).expect(0);
            assert!(
                copied.stdout.trim().ends_with("-product-doc"),
                "{}",
                copied.stdout
            );
            assert_eq!(copied.stdout.lines().count(), 1);
            let files = fs::read_dir(cache.join("realisations")).unwrap();
            assert_eq!(files.count(), 1);
        }
    }
}

#[test]
fn collection_deletes_realisations_with_their_paths() {
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let mut place = Place::with_product(nix);
        run(&mut place.floe(&["copy", "--to", &place.cache(), &place.outputs()])).expect(0);
        place.begin_new_store();
        let (cache, key) = (place.cache(), place.public_key.trim().to_owned());
        let outputs = place.outputs();
        let install = [
            "install",
            "--from",
            &cache,
            &outputs,
            "--extra-trusted-public-keys",
            &key,
        ];
        let installed = run(&mut place.floe(&install)).expect(0);
        let paths: Vec<&str> = installed.stdout.lines().collect();
        run(&mut place.floe(&[&["delete"], &paths[..]].concat())).expect(0);
        run(&mut place.floe(&["verify"])).expect(0);
        let again = run(&mut place.floe(&["copy", "--to", &format!("{cache}-2"), &outputs]));
        again.expect(1).stderr_contains("build it first");
        // The store takes them again.
        run(&mut place.floe(&install)).expect(0);
        place.assert_usable("");
    }
}
