//! Tests of the choice between versions and systems.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use floe_cache::{DocumentRequest, Fetched};
use floe_format::{Compression, Hash, PathInfo};
use floe_transfer::Error;

use super::*;

/// A cache whose paths have a deriver, references, and the system of their programs.
#[derive(Default)]
struct Cache {
    paths: BTreeMap<String, (NarInfo, Option<&'static str>)>,
    /// The paths whose NARs were read.
    read: RefCell<Vec<String>>,
    /// How often narinfos were queried.
    queries: Cell<usize>,
}

impl Access for Cache {
    fn fetch(&self, requests: Vec<DocumentRequest>) -> Fetched {
        panic!("no document is needed: {requests:?}");
    }

    fn narinfos(&self, paths: &[StorePath]) -> Result<Vec<Option<NarInfo>>, Error> {
        self.queries.set(self.queries.get() + 1);
        let find = |path: &StorePath| Some(self.paths.get(path.as_str())?.0.clone());
        Ok(paths.iter().map(find).collect())
    }

    fn system(&self, narinfo: &NarInfo) -> Result<Option<String>, Error> {
        let path = narinfo.info.path.to_string();
        self.read.borrow_mut().push(path.clone());
        Ok(self.paths[&path].1.map(str::to_owned))
    }
}

fn path(number: u8, name: &str) -> StorePath {
    StorePath::parse(&format!("{}-{name}", number.to_string().repeat(32))).unwrap()
}

impl Cache {
    /// Adds a path. Its file has as many bytes as its name.
    fn add(
        &mut self,
        path: &StorePath,
        deriver: u8,
        references: &[&StorePath],
        system: Option<&'static str>,
    ) {
        let narinfo = NarInfo {
            info: PathInfo {
                path: path.clone(),
                nar_hash: Hash::sha256([0; 32]),
                nar_size: 1000,
                references: references.iter().copied().cloned().collect::<BTreeSet<_>>(),
                deriver: Some(self::path(deriver, "x.drv")),
                signatures: BTreeSet::new(),
                ca: None,
                registration_time: None,
                ultimate: false,
            },
            url: "nar/x".into(),
            compression: Compression::None,
            file_hash: None,
            file_size: Some(path.name().len() as u64),
        };
        self.paths.insert(path.to_string(), (narinfo, system));
    }

    fn query(&self, name: &str, systems: &mut Systems) -> Result<Vec<String>, String> {
        let text: String = self
            .paths
            .keys()
            .map(|path| format!("/nix/store/{path}\n"))
            .collect();
        let name = match name.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (name, None),
        };
        let found = query(
            &text,
            name,
            "x86_64-linux",
            (&NarInfos::default(), self, systems),
        );
        match found {
            Ok(None) => Ok(Vec::new()),
            Ok(Some(candidate)) => Ok(candidate.outputs.into_values().collect()),
            Err(SourceError::Unusable(Unusable(reason))) => Err(reason),
            Err(error) => panic!("{error:?}"),
        }
    }
}

const OWN: Option<&str> = Some("x86_64-linux");
const OTHER: Option<&str> = Some("aarch64-linux");

#[test]
fn outputs_of_a_derivation_for_this_machine_are_found() {
    let mut cache = Cache::default();
    // The manual pages of both systems have no program. Their derivation tells them apart.
    for (number, deriver, system) in [(1, 8, OTHER), (2, 9, OWN)] {
        cache.add(&path(number, "jq-1.7-bin"), deriver, &[], system);
        cache.add(&path(number + 2, "jq-1.7-man"), deriver, &[], None);
    }
    let mut systems = Systems::new();
    let found = cache.query("jq", &mut systems).unwrap();
    let full = |path: StorePath| format!("/nix/store/{path}");
    assert_eq!(
        found,
        [full(path(2, "jq-1.7-bin")), full(path(4, "jq-1.7-man"))]
    );
    // The programs are read only once.
    let reads = cache.read.borrow().len();
    assert_eq!(cache.query("jq", &mut systems).unwrap(), found);
    assert_eq!(cache.read.borrow().len(), reads);
}

#[test]
fn newest_version_for_this_machine_counts() {
    let mut cache = Cache::default();
    cache.add(&path(1, "jq-1.9"), 1, &[], OWN);
    cache.add(&path(2, "jq-1.10"), 2, &[], OWN);
    cache.add(&path(3, "jq-1.11"), 3, &[], OTHER);
    let mut systems = Systems::new();
    let mut query = |name: &str| cache.query(name, &mut systems);
    assert!(query("jq").unwrap()[0].ends_with("jq-1.10"));
    assert!(query("jq@1.9").unwrap()[0].ends_with("jq-1.9"));
    assert!(query("jq-1.9").unwrap()[0].ends_with("jq-1.9"));
    assert_eq!(query("jq@1.8").unwrap(), Vec::<String>::new());
    assert_eq!(
        query("jq@1.11").unwrap_err(),
        "this machine needs x86_64-linux, and version 1.11 is for aarch64-linux"
    );
}

#[test]
fn references_tell_the_system_of_scripts() {
    let mut cache = Cache::default();
    let [own, other] = [path(7, "bash-5"), path(8, "bash-5")];
    cache.add(&own, 7, &[], OWN);
    cache.add(&other, 8, &[], OTHER);
    cache.add(&path(1, "script-1"), 1, &[&other], None);
    cache.add(&path(2, "script-1"), 2, &[&own], None);
    let mut systems = Systems::new();
    let found = cache.query("script", &mut systems).unwrap();
    assert_eq!(found, [format!("/nix/store/{}", path(2, "script-1"))]);
}

#[test]
fn loader_of_a_known_system_saves_requests() {
    let mut cache = Cache::default();
    let loader = path(7, "glibc-2.40");
    cache.add(&path(1, "one-1"), 1, &[&loader], OWN);
    cache.add(&path(2, "two-1"), 2, &[&loader], OWN);
    let mut systems = Systems::new();
    cache.query("one", &mut systems).unwrap();
    cache.query("two", &mut systems).unwrap();
    assert_eq!(*cache.read.borrow(), [path(1, "one-1").to_string()]);
}

#[test]
fn undecided_packages_are_named() {
    let mut cache = Cache::default();
    for number in [1, 2] {
        cache.add(&path(number, "data-1"), number, &[], None);
    }
    let error = cache.query("data", &mut Systems::new()).unwrap_err();
    assert!(
        error.starts_with("the list has 2 packages of this name"),
        "{error}"
    );
    for number in [1, 2] {
        assert!(error.contains(path(number, "data-1").as_str()), "{error}");
    }
    // A path without programs is for all systems.
    cache.paths.pop_first();
    assert_eq!(cache.query("data", &mut Systems::new()).unwrap().len(), 1);
}

#[test]
fn many_packages_need_one_query() {
    let mut cache = Cache::default();
    let loader = path(7, "glibc-2.40");
    for number in 1..6 {
        cache.add(
            &path(number, &format!("p{number}-1")),
            number,
            &[&loader],
            machine(),
        );
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("list");
    let lines: String = cache
        .paths
        .keys()
        .map(|path| format!("/nix/store/{path}\n"))
        .collect();
    std::fs::write(&file, lines).unwrap();
    let uri = ListUri::File(file);
    let names = ["p1", "p2", "p3", "p4", "p5@1", "absent"];
    let mut systems = Systems::new();
    let kept = (None, Duration::ZERO);
    let found = query_all((&uri, kept), &names, (&cache, &mut systems));
    assert!(
        found[..5].iter().all(|found| matches!(found, Ok(Some(_)))),
        "{found:?}"
    );
    assert!(matches!(found[5], Ok(None)));
    assert_eq!((cache.queries.get(), cache.read.borrow().len()), (1, 1));
}

/// The system of this machine.
fn machine() -> Option<&'static str> {
    if cfg!(target_arch = "aarch64") {
        OTHER
    } else {
        OWN
    }
}

#[test]
fn newest_of_very_many_versions_counts() {
    let mut cache = Cache::default();
    let newest = path(1, "jq-9.1");
    cache.add(&newest, 1, &[], machine());
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("list");
    let old = (0..500).map(|number| format!("/nix/store/{}-jq-1.{number}\n", "2".repeat(32)));
    let lines = old.collect::<String>() + &format!("/nix/store/{newest}\n").repeat(2);
    std::fs::write(&file, lines).unwrap();
    let uri = ListUri::File(file);
    let kept = (None, Duration::ZERO);
    let found = query_all((&uri, kept), &["jq"], (&cache, &mut Systems::new()));
    let found = found[0].as_ref().unwrap().as_ref().unwrap();
    assert_eq!(
        found.candidate.outputs["out"],
        format!("/nix/store/{newest}")
    );
}
