//! Paths with the shape of nixos-minimal, a closure of 493 paths and 1,033 MiB with which other
//! authors compared servers of a store.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use floe_bench::remove_tree;

use super::{Noise, Workload};

/// Paths of about the same size.
#[derive(Debug)]
struct Class {
    paths: usize,
    /// Files of 1 to 20 KB in each path.
    small_files: usize,
    /// One more file in each path; none if this is 0.
    large_bytes: usize,
}

/// Each class has about a fifth of the paths of the class above it, and paths of about eight times
/// the size. So most paths and files are small, as in a real closure, where opening files decides,
/// and most bytes are in few paths, where sending decides. Together: 500 paths, 42,065 files, of
/// which 100 hold 0.65 GB and the others 0.44 GB.
const CLASSES: [Class; 3] = [
    // Configuration files, scripts, small libraries.
    Class {
        paths: 400,
        small_files: 40,
        large_bytes: 0,
    },
    // Programs with their libraries and translations.
    Class {
        paths: 85,
        small_files: 300,
        large_bytes: 2_000_000,
    },
    // The kernel, the C library, interpreters.
    Class {
        paths: 15,
        small_files: 31,
        large_bytes: 32_000_000,
    },
];

/// Most files of a real closure have sizes in this range.
const SMALL_BYTES_MIN: usize = 1_000;
const SMALL_BYTES_MAX: usize = 20_000;

impl Workload {
    /// Adds the paths to the store and to the cache of NARs as they are, if they are not there.
    /// They occupy more than 2 GB, so only a run with such a row adds them.
    pub(in crate::serve) fn add_many(&mut self) -> Result<()> {
        let directory = self.directory.clone();
        let stamp = format!("{CLASSES:?} {SMALL_BYTES_MIN} {SMALL_BYTES_MAX} 1");
        let (stamp_file, added_file) = (directory.join("many-made-of"), directory.join("many"));
        if fs::read_to_string(&stamp_file).is_ok_and(|made| made == stamp) {
            let added = fs::read_to_string(added_file).context("cannot read the added paths")?;
            return self.set_many(&added);
        }
        println!(
            "adding 500 paths to the store and its cache in {}",
            directory.display()
        );
        let trees = directory.join("many-trees");
        remove_tree(&trees)?;
        let names = write_trees(&trees);
        let names = names.with_context(|| format!("cannot write {}", trees.display()))?;
        let added = self.add_to_store(&trees, &names)?;
        remove_tree(&trees)?;
        self.copy_to_cache((Self::PLAIN, "none"), added.lines())?;
        self.set_many(&added)?;
        fs::write(added_file, added)
            .and_then(|()| fs::write(&stamp_file, stamp))
            .context("cannot write the stamp")
    }

    /// Sets the paths that `nix-store --add` printed.
    fn set_many(&mut self, printed: &str) -> Result<()> {
        self.many = printed.lines().map(String::from).collect();
        let expected: usize = CLASSES.iter().map(|class| class.paths).sum();
        let count = self.many.len();
        ensure!(count == expected, "{count} of {expected} paths were added");
        // The hashes mix the classes, so that a server which sends only a part of the paths in the
        // time of a round sends all classes.
        self.many.sort();
        Ok(())
    }
}

/// Writes the trees, and returns their names.
fn write_trees(directory: &Path) -> io::Result<Vec<String>> {
    let mut noise = Noise(0x0500_f10e);
    let mut names = Vec::new();
    for (at, class) in CLASSES.iter().enumerate() {
        for number in 0..class.paths {
            let name = format!("many-{at}-{number:03}");
            write_tree(&directory.join(&name), class, &mut noise)?;
            names.push(name);
        }
    }
    Ok(names)
}

fn write_tree(tree: &Path, class: &Class, noise: &mut Noise) -> io::Result<()> {
    fs::create_dir_all(tree)?;
    for number in 0..class.small_files {
        let mut file = fs::File::create(tree.join(format!("{number:04}")))?;
        let len = noise.number(SMALL_BYTES_MIN, SMALL_BYTES_MAX);
        file.write_all(&noise.bytes(len))?;
    }
    if class.large_bytes > 0 {
        fs::write(tree.join("large"), noise.bytes(class.large_bytes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_size_of_nixos_minimal() {
        let paths: usize = CLASSES.iter().map(|class| class.paths).sum();
        assert_eq!(paths, 500);
        let average = (SMALL_BYTES_MIN + SMALL_BYTES_MAX) / 2;
        let bytes: usize = CLASSES
            .iter()
            .map(|class| class.paths * (class.small_files * average + class.large_bytes))
            .sum();
        assert!((1_000_000_000..1_100_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn tree_has_the_files_of_its_class() {
        let directory = tempfile::tempdir().unwrap();
        let class = Class {
            paths: 1,
            small_files: 3,
            large_bytes: 50_000,
        };
        write_tree(&directory.path().join("x"), &class, &mut Noise(7)).unwrap();
        let entries = fs::read_dir(directory.path().join("x")).unwrap();
        let lens = entries.map(|entry| entry.unwrap().metadata().unwrap().len());
        let mut lens: Vec<u64> = lens.collect();
        lens.sort_unstable();
        assert_eq!(lens.len(), 4);
        assert_eq!(lens[3], 50_000);
        assert!(
            lens[..3].iter().all(|len| (1_000..=20_000).contains(len)),
            "{lens:?}"
        );
    }
}
