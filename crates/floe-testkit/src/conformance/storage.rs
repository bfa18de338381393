//! The conformance tests of storages.

use std::io::{Read as _, Write};
use std::sync::mpsc::channel;
use std::thread;

use floe_cache::{
    Durability, Folder, Found, ListPage, ListStorage, ObjectPlan, ReadStorage, WriteStorage,
};
use floe_transfer::{Body, CachePolicy, Cancel, Error, NarRequest};

use super::contents::Contents;
use crate::TIMEOUT;

/// Runs all tests of reading from a storage that has [`Contents`].
pub fn check_reader(storage: &dyn ReadStorage, contents: &Contents) {
    assert_eq!(get(storage, "absent.narinfo").unwrap(), None);
    let info = get(storage, "nix-cache-info").unwrap().unwrap();
    assert!(info.starts_with(b"StoreDir: /nix/store"), "{info:?}");
    thread::scope(|scope| {
        for known in &contents.paths {
            scope.spawn(|| {
                let name = format!("{}.narinfo", known.path().hash_part());
                let text = get(storage, &name).unwrap().unwrap();
                let text = String::from_utf8(text).unwrap();
                assert!(text.contains(known.path().as_str()), "{text}");
            });
        }
    });
    for url in ["nar/absent", "../outside", "/etc/passwd", "nar/../../x"] {
        let body = storage.open(url, NarRequest::streamed());
        let error = body.and_then(read_chunks).unwrap_err();
        assert!(!matches!(error, Error::Cancelled), "{url}: {error}");
    }
    if let Some(list) = storage.as_list() {
        let names = names(list);
        for known in &contents.paths {
            let name = format!("{}.narinfo", known.path().hash_part());
            assert!(names.contains(&name), "{name} is not listed");
        }
    }
    assert!(storage.disabled_by().is_none());
}

/// Runs all tests of writing to a storage that is empty.
pub fn check_writer(storage: &dyn WriteStorage) {
    assert_eq!(len(storage, "a.narinfo"), None);
    delete(storage, "a.narinfo");
    storage.create().unwrap();
    storage.create().unwrap();
    for durability in [Durability::Synced, Durability::Unsynced] {
        for contents in [&b"one"[..], b"", b"another"] {
            put(storage, "a.narinfo", contents, durability);
            assert_eq!(get(storage, "a.narinfo").unwrap().unwrap(), contents);
            assert_eq!(len(storage, "a.narinfo"), Some(contents.len() as u64));
        }
    }
    put(storage, "log/deep/b", b"deep", Durability::Synced);
    assert_eq!(get(storage, "log/deep/b").unwrap().unwrap(), b"deep");
    new_object_appears_whole(storage);
    concurrent_writers_leave_one_whole_object(storage);
    storage.sync().unwrap();
    for _ in 0..2 {
        delete(storage, "a.narinfo");
        assert_eq!(get(storage, "a.narinfo").unwrap(), None);
    }
    assert_eq!(len(storage, "a.narinfo"), None);
    many_objects_are_deleted_at_once(storage);
}

fn many_objects_are_deleted_at_once(storage: &dyn WriteStorage) {
    let names: Vec<String> = (0..9).map(|number| format!("nar/a&b-{number}")).collect();
    let (deleted, kept) = names.split_at(6);
    for name in &names {
        put(storage, name, b"contents", Durability::Unsynced);
    }
    let mut with_absent = deleted.to_vec();
    with_absent.insert(3, "nar/absent".into());
    for _ in 0..2 {
        delete_all(storage, with_absent.clone());
        let lens = |names: &[String]| names.iter().map(|it| len(storage, it)).collect::<Vec<_>>();
        assert_eq!(lens(deleted), [None; 6]);
        assert_eq!(lens(kept), [Some(8); 3]);
    }
}

fn new_object_appears_whole(storage: &dyn WriteStorage) {
    let listed = || storage.as_list().map(|list| names(list).len());
    let before = listed();
    let plan = |name: &str, len| ObjectPlan {
        early_name: name.into(),
        len,
    };
    for len in [7, LARGE_LEN] {
        let mut dropped = storage.begin_object(&plan("nar/dropped.nar", len)).unwrap();
        write_sevens(&mut *dropped, len);
        drop(dropped);
    }
    assert_eq!(listed(), before, "a dropped object has left something");
    for new_len in [0, 1_000_000, LARGE_LEN] {
        let early = format!("nar/early-{new_len}.nar");
        let mut object = storage.begin_object(&plan(&early, new_len)).unwrap();
        write_sevens(&mut *object, new_len);
        let name = format!("nar/{new_len}.nar");
        assert_eq!([&name, &early].map(|it| len(storage, it)), [None, None]);
        let (sender, replies) = channel();
        let given = object.finish(&name, Box::new(move |done| sender.send(done).unwrap()));
        replies.recv_timeout(TIMEOUT).unwrap().unwrap();
        assert!(given == name || given == early, "{given}");
        assert_eq!(len(storage, &given), Some(new_len));
    }
}

fn write_sevens(object: &mut (impl Write + ?Sized), len: u64) {
    let mut sevens = std::io::repeat(7).take(len);
    std::io::copy(&mut sevens, object).unwrap();
}

fn concurrent_writers_leave_one_whole_object(storage: &dyn WriteStorage) {
    const LEN: usize = 10_000;
    thread::scope(|scope| {
        for byte in 0..4 {
            scope.spawn(move || {
                for _ in 0..20 {
                    let contents = [byte; LEN];
                    put(storage, "a.narinfo", &contents, Durability::Unsynced);
                    let found = get(storage, "a.narinfo").unwrap().unwrap();
                    assert_eq!(found, vec![found[0]; LEN]);
                }
            });
        }
    });
}

fn get(storage: &(impl ReadStorage + ?Sized), name: &str) -> Result<Option<Vec<u8>>, Error> {
    let (sender, replies) = channel();
    let reply = move |found: Result<Found, Error>| sender.send(found).unwrap();
    storage.get(name, CachePolicy::Bypass, Box::new(reply));
    Ok(replies.recv_timeout(TIMEOUT).unwrap()?.into_contents())
}

fn names(list: &dyn ListStorage) -> Vec<String> {
    let page = |next: Option<&str>| {
        list.list_page(Folder::Top, next, &Cancel::default())
            .unwrap()
    };
    let ListPage { mut objects, next } = page(None);
    let mut following = next;
    while let Some(next) = following {
        let mut more = page(Some(&next));
        objects.append(&mut more.objects);
        following = more.next;
    }
    objects.into_iter().map(|object| object.name).collect()
}

fn put(storage: &dyn WriteStorage, name: &str, contents: &[u8], durability: Durability) {
    let (sender, replies) = channel();
    let reply = Box::new(move |done| sender.send(done).unwrap());
    storage.put(name, contents.to_owned(), durability, reply);
    replies.recv_timeout(TIMEOUT).unwrap().unwrap();
}

fn delete(storage: &dyn WriteStorage, name: &str) {
    delete_all(storage, vec![name.to_owned()]);
}

fn delete_all(storage: &dyn WriteStorage, names: Vec<String>) {
    let (sender, replies) = channel();
    storage.delete(names, Box::new(move |done| sender.send(done).unwrap()));
    replies.recv_timeout(TIMEOUT).unwrap().unwrap();
}

fn len(storage: &dyn WriteStorage, name: &str) -> Option<u64> {
    let (sender, replies) = channel();
    storage.query_len(name, Box::new(move |len| sender.send(len).unwrap()));
    replies.recv_timeout(TIMEOUT).unwrap().unwrap()
}

/// Reads a body to its end.
fn read_chunks(body: Body) -> Result<(), Error> {
    let Body::Chunks(mut chunks) = body else {
        return Ok(());
    };
    chunks.begin();
    while chunks.wait_for_next()?.is_some() {}
    Ok(())
}

/// The length of an object that no storage behind a network keeps in memory, in bytes.
const LARGE_LEN: u64 = 20 * 1024 * 1024 + 1;
