//! Names in lists of store paths, and `floe search`.

use std::os::unix::fs::PermissionsExt as _;

use floe_testkit::{create_certificates, find_tool, nginx};
use serde_json::Value;

use super::*;

/// Adds a package with a program for another system to the cache. Returns its path.
fn add_foreign(packages: &Packages) -> String {
    let directory = packages.scratch.join("greet-3.0");
    fs::create_dir_all(directory.join("bin")).unwrap();
    let mut program = fs::read("/bin/echo").unwrap();
    // The machine in the ELF header: that of aarch64, or of x86_64.
    program[18] = if program[18] == 183 { 62 } else { 183 };
    let file = directory.join("bin/greet");
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let root = packages.scratch.join("origin");
    let added = packages
        .nix
        .store(&root, ["--add".as_ref(), directory.as_os_str()]);
    let path = added.trim().to_owned();
    let mut push = floe(["push", "--secret-key-file"]);
    push.arg(packages.scratch.join("key"))
        .arg("--root")
        .arg(&root);
    run(push.args(["--to", &packages.cache_url(), &path])).expect(0);
    path
}

/// Writes a compressed list into the directory of a server.
fn write_list(directory: &Path, paths: &[&str]) {
    let plain = directory.join("store-paths");
    fs::write(&plain, paths.join("\n")).unwrap();
    let compressed = Command::new("xz").args(["-f", "-k"]).arg(&plain).status();
    assert!(compressed.unwrap().success());
}

#[test]
fn name_of_a_list_is_installed_for_this_machine() {
    let Some(packages) = packages() else { return };
    let foreign = add_foreign(&packages);
    let directory = packages.scratch.join("channel");
    fs::create_dir(&directory).unwrap();
    write_list(&directory, &[&packages.old, &foreign, &packages.new]);
    let server = FaultServer::start(&directory).with_validators();
    let names = format!("channel=list+{}/store-paths.xz", server.url());
    let root = packages.scratch.join("root").display().to_string();

    // Version 3.0 is the newest one, and for another machine.
    let installed = packages.install(&root, "greet", &names).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.new]));
    let verified = packages
        .nix
        .store(Path::new(&root), ["--verify", "--check-contents"]);
    assert!(!verified.contains("error"), "{verified}");
    let url = packages.cache_url();
    let run_greet = ["run", "greet@2.0", "--root", &root, "--from", &url];
    let mut program = packages.floe(&run_greet, &names);
    let ran = run(program.args(["--", "hello"])).expect(0);
    assert_eq!(ran.stdout, "hello\n");
    let old = packages.install(&root, "greet@1.0", &names).expect(0);
    assert_eq!(old.json()["paths"], json!([packages.old]));
    let refused = packages.install(&root, "greet@3.0", &names).expect(1);
    refused.stderr_contains("version 3.0 is for ");
    packages
        .install(&root, "absent", &names)
        .expect(1)
        .stderr_contains("no package of this name");
    // All of these used one document.
    assert_eq!(server.requests().len(), 1);

    // A server that still has the same list does not send it again.
    let search = |words: &[&str]| run(&mut packages.floe(words, &names));
    search(&["search", "greet", "--refresh"]).expect(0);
    let statuses: Vec<u16> = server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [200, 304]);
    // A server that is away does not hide the list.
    drop(server);
    let offline = search(&["search", "greet", "--refresh"]).expect(0);
    let offline = offline.stderr_contains("using the list ");
    assert_eq!(offline.stdout.lines().count(), 3);
    let checked = search(&["search", "--check-sources"]).expect(1);
    checked.stderr_contains("cannot use 1 of 1 name source");
}

#[test]
fn search_finds_all_words_in_lists_and_files() {
    let Some(packages) = packages() else { return };
    let list = packages.scratch.join("list");
    let hash_part = "0".repeat(32);
    let other = format!("/nix/store/{hash_part}-libgreet-9-dev");
    fs::write(&list, [&*packages.old, &packages.new, &other].join("\n")).unwrap();
    let file = packages.scratch.join("names.json");
    fs::write(&file, json!({ "own.greet": packages.new }).to_string()).unwrap();
    let names = format!(
        "channel=list:{} team=file:{}",
        list.display(),
        file.display()
    );
    let search = |words: &[&str]| {
        let words = [&["search"], words].concat();
        run(&mut packages.floe(&words, &names))
    };
    let found = search(&["GREET"]).expect(0);
    let lines: Vec<&str> = found.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "greet      2.0  channel  (out)",
            "greet      1.0  channel  (out)",
            "libgreet   9    channel  (dev)",
            "own.greet  2.0  team  (out)",
        ]
    );
    let found: Value = search(&["greet", "lib", "--json"]).expect(0).json();
    assert_eq!(found["packages"][0]["outputs"]["dev"], json!([other]));
    assert_eq!(found["packages"].as_array().unwrap().len(), 1);
    // A list has the version that the first source lacks.
    let team = format!("file:{}", packages.scratch.join("team.toml").display());
    fs::write(
        packages.scratch.join("team.toml"),
        format!("greet = '{}'", packages.new),
    )
    .unwrap();
    let both = format!("{team} channel=list:{}", list.display());
    let root = packages.scratch.join("root").display().to_string();
    let installed = packages.install(&root, "greet@1.0", &both).expect(0);
    assert_eq!(installed.json()["paths"], json!([packages.old]));
    let absent = packages.install(&root, "greet@7", &both).expect(1);
    absent.stderr_contains("it has version \"2.0\", not \"7\"");
    search(&["greet", "absent"])
        .expect(1)
        .stderr_contains("greet and absent");
    let checked = search(&["--check-sources"]).expect(0);
    assert!(
        checked.stdout.contains("list: 3 paths"),
        "{}",
        checked.stdout
    );
    assert!(
        checked.stdout.contains("names.json: 1 names"),
        "{}",
        checked.stdout
    );
    let hydra = run(&mut packages.floe(&["search", "x"], "hydra+http://localhost:1/p/j")).expect(2);
    hydra.stderr_contains("no name source has a list");
}

#[test]
fn list_over_tls_is_not_redirected_to_plain_http() {
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let place = scratch();
    let certificates = create_certificates(&openssl, place.path());
    let path = format!("/nix/store/{}-greet-1.0", "0".repeat(32));
    fs::write(place.join("list"), &path).unwrap();
    let plain = FaultServer::start(place.path());
    let extra = format!(
        "listen 127.0.0.1:PORT1 ssl; {} location /moved {{ return 302 {}/list; }} \
         location /near {{ return 302 /list; }}",
        certificates.server,
        plain.url()
    );
    let Some(server) = nginx(place.path(), &extra) else {
        return;
    };
    let search = |name: &str| {
        let names = format!("list+https://127.0.0.1:{}/{name}", server.port(1));
        let mut command = floe(["search", "greet", "--names", &names]);
        command.env("NIX_SSL_CERT_FILE", &certificates.authority);
        command.env("XDG_CACHE_HOME", place.join("cache"));
        run(&mut command)
    };
    for name in ["list", "near"] {
        assert!(search(name).expect(0).stdout.starts_with("greet  1.0"));
    }
    let refused = search("moved").expect(4);
    refused.stderr_contains("the server redirected from https to http://");
    assert!(plain.requests().is_empty(), "{:?}", plain.requests());
}
