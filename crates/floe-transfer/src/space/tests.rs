//! Tests with invented sizes and file systems.

use std::path::Path;

use floe_format::StoreDir;

use super::*;
use crate::planned_path::PlannedPath;

/// Returns a narinfo with these sizes.
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

/// Returns the space of ten paths with 60 MiB of NARs on a file system with this free space.
fn space(bytes: Option<u64>, inodes: Option<u64>, allocates_every_byte: bool) -> Space {
    let needs = sum((0..10).map(|_| Needs::of_tree(&narinfo(6 * MIB, "none", None))));
    assert_eq!((needs.min_bytes, needs.inodes), (45 * MIB, 10 * 193));
    assert!(needs.bytes > 60 * MIB && needs.bytes < 65 * MIB);
    Space {
        directory: "/mnt/nix/store".into(),
        file_system: FileSystem {
            mount_point: "/mnt".into(),
            kind: Some("tmpfs"),
            free_bytes: bytes,
            free_inodes: inodes,
            allocates_every_byte,
        },
        paths: 10,
        write_bytes: needs.bytes,
        write_inodes: needs.inodes,
        min_bytes: needs.min_bytes,
        may_share_files: false,
    }
}

const MIB: u64 = 1024 * 1024;

/// Returns the resource of each shortage, and whether it is certain.
fn found(space: &Space) -> Vec<(Resource, bool)> {
    let shortages = space.shortages();
    let known = shortages
        .iter()
        .map(|found| (found.resource, found.is_certain));
    known.collect()
}

#[test]
fn sufficient_or_unknown_space_is_no_shortage() {
    assert_eq!(found(&space(Some(100 * MIB), Some(5000), true)), []);
    assert_eq!(found(&space(None, None, true)), []);
    assert_eq!(found(&space(Some(100 * MIB), None, false)), []);
}

#[test]
fn shortage_is_certain_only_below_minimum() {
    let bytes = |free, keeps| found(&space(Some(free), None, keeps));
    assert_eq!(bytes(45 * MIB - 1, true), [(Resource::Bytes, true)]);
    assert_eq!(bytes(45 * MIB, true), [(Resource::Bytes, false)]);
    // A file system that compresses may have room for anything.
    assert_eq!(bytes(0, false), [(Resource::Bytes, false)]);

    let inodes = |free| found(&space(None, Some(free), false));
    assert_eq!(inodes(9), [(Resource::Inodes, true)]);
    assert_eq!(inodes(10), [(Resource::Inodes, false)]);
    assert_eq!(inodes(10 * 193), []);
}

#[test]
fn shared_files_make_every_shortage_uncertain() {
    let mut full = space(Some(0), Some(0), true);
    let all = |is_certain| {
        vec![
            (Resource::Bytes, is_certain),
            (Resource::Inodes, is_certain),
        ]
    };
    assert_eq!(found(&full), all(true));
    full.may_share_files = true;
    assert_eq!(found(&full), all(false));
}

#[test]
fn certain_shortages_come_first() {
    let both = found(&space(Some(50 * MIB), Some(9), true));
    assert_eq!(both, [(Resource::Inodes, true), (Resource::Bytes, false)]);
}

#[test]
fn shortage_message_names_amounts_and_mount_point() {
    let message = |space: Space| space.shortages()[0].to_string();
    assert_eq!(
        message(space(Some(142 * 1024), None, true)),
        "it needs about 64 MiB in /mnt/nix/store, but /mnt (tmpfs) has 142 KiB free"
    );
    assert_eq!(
        message(space(None, Some(3), true)),
        "it needs at least 10 inodes in /mnt/nix/store, but /mnt (tmpfs) has 3 inodes free"
    );
    let warning = message(space(None, Some(99), true));
    assert!(
        warning.starts_with("it needs about 1930 inodes"),
        "{warning}"
    );
}

#[test]
fn cache_needs_count_compressed_nar_and_its_files() {
    let from_zstd = narinfo(9000, "zstd", Some(3500));
    let needs = Needs::of_nar_file(&from_zstd, Compression::None, 2);
    assert_eq!((needs.bytes, needs.inodes), (9000 + 2 * FILE_OVERHEAD, 2));
    assert_eq!(needs.min_bytes, 6750);
    let needs = Needs::of_nar_file(&from_zstd, Compression::Xz, 3);
    assert_eq!((needs.bytes, needs.inodes), (3500 + 3 * FILE_OVERHEAD, 3));
    assert_eq!(needs.min_bytes, 0);
    // The size of an uncompressed body does not show how well it compresses.
    let needs = Needs::of_nar_file(&narinfo(9000, "none", Some(9000)), Compression::Xz, 2);
    assert_eq!(needs.bytes, 3000 + 2 * FILE_OVERHEAD);
}

#[test]
fn implausible_sizes_are_ignored_and_sums_saturate() {
    let absurd = Needs::of_tree(&narinfo(u64::MAX, "none", None));
    assert_eq!((absurd.min_bytes, absurd.inodes), (0, 1));
    let largest = Needs::of_tree(&narinfo(NAR_SIZE_MAX, "none", None));
    assert!(largest.min_bytes > NAR_SIZE_MAX / 2);
    let all = sum(std::iter::repeat_n(largest, 1 << 25));
    assert_eq!(all.bytes, u64::MAX);
}

#[test]
fn recovered_trees_need_no_space() {
    let planned = |is_recovered| {
        Arc::new(PlannedPath {
            narinfo: narinfo(6 * MIB, "none", None),
            source: 0,
            local_copies: Vec::new(),
            is_recovered,
            relies_on_content_address: false,
            keeps_signatures: false,
        })
    };
    let of = |planned_paths: &[Arc<PlannedPath>]| {
        let space = Space::estimate(Path::new("/mnt/root"), planned_paths, Needs::of_tree).unwrap();
        (space.paths, space.write_bytes)
    };
    let (paths, bytes) = of(&[planned(false)]);
    assert!(paths == 1 && bytes > 6 * MIB);
    assert_eq!(of(&[planned(true)]), (0, 0));
    assert_eq!(of(&[planned(true), planned(false)]), (1, bytes));
}
