//! The conformance tests of sources.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread;

use floe_format::NarInfo;
use floe_transfer::{CachePolicy, Cancel, Error, ErrorKind, NarRequest, PathSpec, Source};

use super::contents::{Contents, KnownPath};
use super::incoming::read_nar;
use crate::{TIMEOUT, wait_until};

/// A source that has [`Contents`].
#[derive(Debug)]
pub struct SourceFixture<'a> {
    /// The open source.
    pub source: &'a dyn Source,
    /// Its paths.
    pub contents: &'a Contents,
    /// Whether it can list its paths.
    pub lists: bool,
}

/// Runs all tests of a source.
pub fn check_source(fixture: &SourceFixture<'_>) {
    wait_until("the source does not open", || {
        fixture.source.open_result().is_some()
    });
    fixture.source.open_result().unwrap().unwrap();
    fixture.absent_path_is_not_found();
    fixture.known_paths_have_their_narinfos_and_nars();
    fixture.each_query_gets_one_reply();
    fixture.concurrent_readers_get_whole_nars();
    fixture.abandoned_nar_blocks_nobody();
    fixture.list_is_complete();
    fixture.cancelled_query_ends();
}

impl SourceFixture<'_> {
    fn query(&self, known: &KnownPath) -> NarInfo {
        let spec = PathSpec::Path(known.path().clone());
        let found = self.source.query_path_info(&spec, &Cancel::default());
        found
            .unwrap()
            .unwrap_or_else(|| panic!("{} is missing", known.path()))
    }

    fn absent_path_is_not_found(&self) {
        let absent = PathSpec::Path(self.contents.absent());
        for _ in 0..2 {
            let found = self.source.query_path_info(&absent, &Cancel::default());
            assert_eq!(found.unwrap(), None);
        }
    }

    fn known_paths_have_their_narinfos_and_nars(&self) {
        for known in &self.contents.paths {
            let found = self.query(known);
            let expected = &known.narinfo.info;
            assert_eq!(found.info.path, expected.path);
            assert_eq!(found.info.nar_hash, expected.nar_hash, "{}", expected.path);
            assert_eq!(found.info.nar_size, expected.nar_size, "{}", expected.path);
            assert_eq!(found.info.references, expected.references);
            assert_eq!(self.query(known), found, "a second query has another reply");
            for _ in 0..2 {
                let nar = read_nar(self.source, &found).unwrap();
                assert!(nar == known.nar, "{} has another NAR", expected.path);
            }
        }
    }

    fn each_query_gets_one_reply(&self) {
        const ROUNDS: usize = 50;
        let (sender, replies) = channel();
        let absent = self.contents.absent();
        let mut queried = self.contents.store_paths();
        queried.push(absent.clone());
        for _ in 0..ROUNDS {
            for path in &queried {
                let (sender, path) = (sender.clone(), path.clone());
                let spec = PathSpec::Path(path.clone());
                let reply = move |result: Result<_, Error>| sender.send((path, result)).unwrap();
                self.source.query(&spec, CachePolicy::Use, Box::new(reply));
            }
        }
        drop(sender);
        let mut count = 0;
        while let Ok((path, result)) = replies.recv_timeout(TIMEOUT) {
            let found = result.unwrap().narinfo.map(|narinfo| narinfo.info.path);
            assert_eq!(found, (path != absent).then_some(path));
            count += 1;
        }
        assert_eq!(count, ROUNDS * queried.len());
    }

    fn concurrent_readers_get_whole_nars(&self) {
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    for known in self.contents.paths.iter().rev() {
                        let nar = read_nar(self.source, &self.query(known)).unwrap();
                        assert!(nar == known.nar, "{} has another NAR", known.path());
                    }
                });
            }
        });
    }

    /// The copy drops NARs that it has requested ahead and does not need.
    fn abandoned_nar_blocks_nobody(&self) {
        let largest = self.contents.paths.last().unwrap();
        let narinfo = self.query(largest);
        for _ in 0..READERS * 4 {
            drop(self.source.open_nar(&narinfo, NarRequest::streamed()));
        }
        assert!(read_nar(self.source, &narinfo).unwrap() == largest.nar);
    }

    fn list_is_complete(&self) {
        let listed = self.source.query_all_valid_paths().unwrap();
        assert_eq!(listed.is_some(), self.lists);
        if let Some(listed) = listed {
            let expected: BTreeSet<_> = self.contents.store_paths().into_iter().collect();
            assert_eq!(listed.len(), expected.len());
            assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    /// A reply that is there already may still arrive.
    fn cancelled_query_ends(&self) {
        let cancel = Cancel::default();
        cancel.raise();
        let spec = PathSpec::Path(self.contents.paths[0].path().clone());
        let ended = self.source.query_path_info(&spec, &cancel);
        assert!(
            matches!(ended, Ok(Some(_)) | Err(Error::Cancelled)),
            "{ended:?}"
        );
    }
}

/// Checks that the NAR of a path, which the test has altered, cut or removed in the source, is an
/// error of the source, so that a copy tries another one.
pub fn check_unreadable_nar(source: &dyn Source, known: &KnownPath) {
    let spec = PathSpec::Path(known.path().clone());
    let narinfo = source.query_path_info(&spec, &Cancel::default());
    let error = read_nar(source, &narinfo.unwrap().unwrap()).unwrap_err();
    let kind = error.kind();
    assert!(
        matches!(kind, ErrorKind::Untrusted | ErrorKind::Network),
        "{kind:?}: {error}"
    );
}

const READERS: usize = 6;
