//! Compares plans with the NARs that [`dump_path`] writes.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::tree::dump_path;

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("a/empty")).unwrap();
    fs::write(root.join("a/b"), b"contents").unwrap();
    fs::write(root.join("a/none"), b"").unwrap();
    fs::write(root.join("x"), vec![7; 1001]).unwrap();
    fs::set_permissions(root.join("x"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a/b", root.join("link")).unwrap();
    dir
}

fn dumped(path: &Path) -> Vec<u8> {
    let mut nar = Vec::new();
    dump_path::<StoreError>(path, &mut |chunk| {
        nar.extend_from_slice(chunk);
        Ok(())
    })
    .unwrap();
    nar
}

/// Assembles the NAR from `start` from the parts of the plan.
fn planned(plan: &NarPlan, path: &Path, start: u64) -> Vec<u8> {
    let mut root = open_tree_root(path).unwrap();
    let mut nar = Vec::new();
    while let Some(part) = plan.part(start + nar.len() as u64) {
        match part {
            PlanPart::Framing(bytes) => nar.extend_from_slice(bytes),
            PlanPart::Packed { file, offset, len } => {
                let mut bytes = vec![0; len as usize];
                let read = rustix::io::pread(file, &mut bytes, offset).unwrap();
                assert_eq!(read as u64, len);
                nar.extend_from_slice(&bytes);
            }
            PlanPart::Contents { file, offset, len } => {
                let mut contents = Vec::new();
                let mut opened = fs::File::from(plan.open(&mut root, file).unwrap());
                opened.read_to_end(&mut contents).unwrap();
                assert_eq!(contents.len() as u64, offset + len);
                nar.extend_from_slice(&contents[offset as usize..]);
            }
        }
    }
    nar
}

#[test]
fn plan_parts_equal_nar_from_any_offset() {
    let dir = tree();
    for name in ["root", "root/x", "root/a/none", "root/link", "root/a/empty"] {
        let path = dir.path().join(name);
        let nar = dumped(&path);
        let plan = NarPlan::new(&path).unwrap();
        let mut root = open_tree_root(&path).unwrap();
        let some_packed = plan.pack(&mut root, 100).unwrap();
        let all_packed = plan.pack(&mut root, u64::MAX).unwrap();
        assert_eq!(all_packed.files.len(), 0);
        assert_eq!(plan.small_files(u64::MAX).1, nar.len() as u64);
        for plan in [plan, some_packed, all_packed] {
            assert_eq!(plan.nar_size(), nar.len() as u64);
            for start in 0..=nar.len() {
                let rest = planned(&plan, &path, start as u64);
                assert_eq!(rest, &nar[start..], "{name} {start}");
            }
        }
    }
}

#[test]
fn plan_of_large_directory_equals_nar() {
    let dir = tree();
    let many = dir.path().join("root/many");
    fs::create_dir(&many).unwrap();
    for number in 0..1000 {
        let place = many.join(format!("{number:x}"));
        match number % 5 {
            0 => symlink(number.to_string(), place).unwrap(),
            1 => fs::create_dir_all(place.join("below")).unwrap(),
            _ => fs::write(place, "x".repeat(number)).unwrap(),
        }
    }
    let path = dir.path().join("root");
    let plan = NarPlan::new(&path).unwrap();
    assert!(planned(&plan, &path, 0) == dumped(&path));
    // The second thread also finds a file that a NAR cannot contain.
    let socket = std::os::unix::net::UnixListener::bind(many.join("zzz")).unwrap();
    let error = NarPlan::new(&path).unwrap_err();
    assert!(error.to_string().contains("many/zzz"), "{error}");
    drop(socket);
}

#[test]
fn no_link_is_followed_without_openat2() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    fs::write(dir.path().join("a/b/file"), "").unwrap();
    symlink("file", dir.path().join("a/b/link")).unwrap();
    symlink("a", dir.path().join("c")).unwrap();
    let root = open_tree_root(dir.path()).unwrap().directory.unwrap();
    let open = |name: &[u8]| open_each(&root, name, OFlags::RDONLY | OFlags::CLOEXEC);
    assert!(open(b"a/b/file").is_ok());
    assert_eq!(open(b"a/b/link").unwrap_err(), Errno::LOOP);
    assert_eq!(open(b"c/b/file").unwrap_err(), Errno::NOTDIR);
    assert_eq!(open(b"a/b/absent").unwrap_err(), Errno::NOENT);
}

#[test]
fn changed_file_is_not_opened() {
    let dir = tree();
    let path = dir.path().join("root");
    let plan = NarPlan::new(&path).unwrap();
    let mut root = open_tree_root(&path).unwrap();
    assert_eq!(plan.files.len(), 3);
    assert!(plan.open(&mut root, 0).is_ok());
    fs::write(path.join("a/b"), b"other contents").unwrap();
    assert!(matches!(
        plan.open(&mut root, 0),
        Err(StoreError::FileChanged(_))
    ));
    assert!(plan.read(&mut root, 0, &mut Vec::new()).is_err());
    fs::rename(path.join("a"), path.join("c")).unwrap();
    let mut root = open_tree_root(&path).unwrap();
    assert!(matches!(
        plan.open(&mut root, 0),
        Err(StoreError::Io { .. })
    ));
    symlink("c", path.join("a")).unwrap();
    assert!(matches!(
        plan.open(&mut root, 1),
        Err(StoreError::Io { .. })
    ));
    fs::remove_dir_all(&path).unwrap();
    assert!(open_tree_root(&path).is_err());
}
