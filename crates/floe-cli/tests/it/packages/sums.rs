//! Sums, signature and the bill of materials of a release.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use floe_testkit::{run, scratch};
use serde_json::Value;

use super::{full_release, platform, release_file};

#[test]
fn every_file_has_a_signed_sum() {
    let Some(release) = full_release() else {
        return;
    };
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "SHA256SUMS"]);
    run(check.current_dir(&release)).expect(0);
    let sums = fs::read_to_string(release.join("SHA256SUMS")).unwrap();
    let summed: BTreeSet<&str> = sums.lines().map(|line| &line[66..]).collect();
    let files = fs::read_dir(&release).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let others: Vec<String> = files.filter(|name| !summed.contains(&**name)).collect();
    assert_eq!(BTreeSet::from_iter(&others).len(), 2, "{others:?}");
    assert!(others.iter().all(|name| name.starts_with("SHA256SUMS")));
    // The key is in install.sh.
    let script = fs::read_to_string(release.join("install.sh")).unwrap();
    let signer = script
        .lines()
        .find_map(|line| line.strip_prefix("signer='"));
    let signer = signer.unwrap().trim_end_matches('\'');
    let scratch = scratch();
    let signers = scratch.join("signers");
    fs::write(
        &signers,
        format!("floe namespaces=\"floe-release\" {signer}\n"),
    )
    .unwrap();
    let mut verify = Command::new("ssh-keygen");
    verify.args(["-Y", "verify", "-I", "floe", "-n", "floe-release", "-f"]);
    verify
        .arg(&signers)
        .arg("-s")
        .arg(release.join("SHA256SUMS.sig"));
    verify.stdin(fs::File::open(release.join("SHA256SUMS")).unwrap());
    run(&mut verify).expect(0);
    verify.stdin(fs::File::open(&signers).unwrap());
    assert_ne!(run(&mut verify).code, Some(0));
}

#[test]
fn bill_of_materials_names_the_works_of_the_licence_file() {
    let Some(release) = full_release() else {
        return;
    };
    let bill = release_file(&release, "floe-", &format!("-{}.cdx.json", platform()));
    let text = fs::read_to_string(bill).unwrap();
    // No path of the machine that built the release.
    let places = text.matches("path+file://").count();
    assert!(places > 0);
    assert_eq!(text.matches("path+file:///floe/").count(), places);
    let bill: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let components = bill["components"].as_array().unwrap().iter();
    let named: BTreeSet<String> = components
        .map(|it| {
            let field = |name: &str| it[name].as_str().unwrap().to_owned();
            format!("{} {}", field("name"), field("version"))
        })
        .collect();
    let tarball = release_file(&release, "floe-", &format!("-{}.tar.gz", platform()));
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout", "--wildcards", "--file"]);
    let licences = run(tar.arg(tarball).arg("*/THIRD-PARTY")).expect(0).stdout;
    let works: Vec<String> = licences
        .lines()
        .filter_map(|line| line.strip_prefix("=== "))
        .map(|line| line.split(" (").next().unwrap().to_owned())
        .collect();
    assert!(works.len() > 50, "{works:?}");
    let missing: Vec<&String> = works.iter().filter(|work| !named.contains(*work)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}
