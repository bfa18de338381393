//! Tests on sizes and file systems of their own.

use std::path::Path;

use floe_format::StoreDir;

use super::*;
use crate::location::Location;

/// What a cache says of a path whose NAR has this size, and its file that.
fn narinfo(nar_size: u64, compression: &str, file_size: Option<u64>) -> NarInfo {
    let hash = "sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s";
    let file_size = file_size.map_or(String::new(), |size| format!("FileSize: {size}\n"));
    let text = format!(
        "StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-path\nURL: nar\n\
         Compression: {compression}\n{file_size}NarHash: {hash}\nNarSize: {nar_size}\n\
         References: \n"
    );
    NarInfo::parse(text.as_bytes(), &StoreDir::default()).unwrap()
}

fn cache(parameters: &str) -> FileLocation {
    match Location::parse(&format!("file:///cache?{parameters}"), None, None).unwrap() {
        Location::File(file) => file,
        other => panic!("{other} is no cache in a directory"),
    }
}

/// A move of ten paths with 60 MiB of NARs, onto a file system with this much left.
fn space(bytes: Option<u64>, inodes: Option<u64>, keeps_every_byte: bool) -> Space {
    let needs = sum((0..10).map(|_| in_store(&narinfo(6 * MIB, "none", None))));
    assert_eq!((needs.at_least, needs.inodes), (45 * MIB, 10 * 193));
    assert!(needs.bytes > 60 * MIB && needs.bytes < 65 * MIB);
    Space {
        directory: "/mnt/nix/store".into(),
        file_system: FileSystem {
            place: "/mnt".into(),
            kind: Some("tmpfs"),
            free_bytes: bytes,
            free_inodes: inodes,
            keeps_every_byte,
        },
        paths: 10,
        write_bytes: needs.bytes,
        write_inodes: needs.inodes,
        at_least: needs.at_least,
        shares: false,
    }
}

const MIB: u64 = 1024 * 1024;

/// Of what there is too little, and whether that is certain.
fn found(space: &Space) -> Vec<(Supply, bool)> {
    let shortages = space.shortages();
    let known = shortages.iter().map(|found| (found.of, found.is_certain));
    known.collect()
}

#[test]
fn what_fits_and_what_nobody_counts_is_no_shortage() {
    assert_eq!(found(&space(Some(100 * MIB), Some(5000), true)), []);
    assert_eq!(found(&space(None, None, true)), []);
    assert_eq!(found(&space(Some(100 * MIB), None, false)), []);
}

#[test]
fn only_what_cannot_fit_is_certain() {
    let bytes = |free, keeps| found(&space(Some(free), None, keeps));
    assert_eq!(bytes(45 * MIB - 1, true), [(Supply::Bytes, true)]);
    assert_eq!(bytes(45 * MIB, true), [(Supply::Bytes, false)]);
    // What compresses may have room for anything.
    assert_eq!(bytes(0, false), [(Supply::Bytes, false)]);

    let inodes = |free| found(&space(None, Some(free), false));
    assert_eq!(inodes(9), [(Supply::Inodes, true)]);
    assert_eq!(inodes(10), [(Supply::Inodes, false)]);
    assert_eq!(inodes(10 * 193), []);
}

#[test]
fn nothing_is_certain_where_files_may_become_one_with_others() {
    let full = space(Some(0), Some(0), true);
    let all = |is_certain| vec![(Supply::Bytes, is_certain), (Supply::Inodes, is_certain)];
    assert_eq!(found(&full), all(true));
    assert_eq!(found(&full.sharing(true)), all(false));
}

#[test]
fn what_is_certain_is_said_first() {
    let both = found(&space(Some(50 * MIB), Some(9), true));
    assert_eq!(both, [(Supply::Inodes, true), (Supply::Bytes, false)]);
}

#[test]
fn a_shortage_says_how_much_of_what_is_wanted_and_free_and_where() {
    let says = |space: Space| space.shortages()[0].to_string();
    assert_eq!(
        says(space(Some(142 * 1024), None, true)),
        "about 63.8 MiB are to be written to /mnt/nix/store, and /mnt (tmpfs), where that lies, \
         has 142.0 KiB free"
    );
    assert_eq!(
        says(space(None, Some(3), true)),
        "10 paths, each of an inode or more, are to be written to /mnt/nix/store, and /mnt \
         (tmpfs), where that lies, has 3 inodes free"
    );
    let warning = says(space(None, Some(99), true));
    assert!(warning.starts_with("about 1930 inodes are"), "{warning}");
}

#[test]
fn a_cache_takes_compressed_nars_and_two_or_three_files_for_each() {
    let from_zstd = narinfo(9000, "zstd", Some(3500));
    let needs = in_cache(&from_zstd, &cache("compression=none"));
    assert_eq!((needs.bytes, needs.inodes), (9000 + 2 * ROUNDING, 2));
    assert_eq!(needs.at_least, 6750);
    let needs = in_cache(&from_zstd, &cache("compression=xz&write-nar-listing=true"));
    assert_eq!((needs.bytes, needs.inodes), (3500 + 3 * ROUNDING, 3));
    assert_eq!(needs.at_least, 0);
    // A source that does not compress says nothing of how far that goes.
    let needs = in_cache(&narinfo(9000, "none", Some(9000)), &cache("compression=xz"));
    assert_eq!(needs.bytes, 3000 + 2 * ROUNDING);
}

#[test]
fn sizes_that_cannot_be_true_do_not_count_and_sums_do_not_overflow() {
    let absurd = in_store(&narinfo(u64::MAX, "none", None));
    assert_eq!((absurd.at_least, absurd.inodes), (0, 1));
    let largest = in_store(&narinfo(NAR_SIZE_MAX, "none", None));
    assert!(largest.at_least > NAR_SIZE_MAX / 2);
    let all = sum(std::iter::repeat_n(largest, 1 << 25));
    assert_eq!(all.bytes, u64::MAX);
}

#[test]
fn the_place_that_counts_is_where_the_contents_go() {
    let location = Location::parse("/mnt/root", None, None).unwrap();
    let target = Target::preview(&location, None).unwrap();
    let space = Space::of(&target, &[]).unwrap();
    assert_eq!(space.directory, Path::new("/mnt/root/nix/store"));
    let location = Location::parse("file:///mnt/cache", None, None).unwrap();
    let target = Target::preview(&location, None).unwrap();
    let space = Space::of(&target, &[]).unwrap();
    assert_eq!(space.directory, Path::new("/mnt/cache/nar"));
}

#[test]
fn what_a_run_has_left_that_ended_early_needs_no_room_once_more() {
    let location = Location::parse("/mnt/root", None, None).unwrap();
    let target = Target::preview(&location, None).unwrap();
    let item = |is_left| Item {
        narinfo: narinfo(6 * MIB, "none", None),
        source: 0,
        places: Vec::new(),
        is_left,
    };
    let of = |items: &[Item]| {
        let space = Space::of(&target, items).unwrap();
        (space.paths, space.write_bytes)
    };
    let (paths, bytes) = of(&[item(false)]);
    assert!(paths == 1 && bytes > 6 * MIB);
    assert_eq!(of(&[item(true)]), (0, 0));
    assert_eq!(of(&[item(true), item(false)]), (1, bytes));
}
