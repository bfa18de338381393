//! The shape of a synthetic store. Name, references and contents of a path follow from its number,
//! so that neither the generator nor the checks keep a list of all paths.
//!
//! Paths refer only to paths with smaller numbers. Three of ten paths are dead. Each live path is
//! below exactly one root in a forest of binary trees, in which a path refers to its children.

use std::collections::BTreeSet;

use floe_hash::sha256;

/// The references beside those of the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum References {
    /// Each path refers to few paths that most others use too, as to a C library.
    Common,
    /// Each path refers to any earlier paths, so that most closures are large.
    Dense,
}

/// The numbers of paths and roots, and the references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The number of paths, a multiple of [`PATHS_PER_ROOT`].
    pub(crate) paths: usize,
    pub(crate) references: References,
}

impl Shape {
    pub(crate) fn roots(self) -> usize {
        self.paths / PATHS_PER_ROOT
    }

    pub(crate) fn dead(self) -> usize {
        self.paths / 10 * DEAD_DIGITS.len()
    }

    fn live(self) -> usize {
        self.paths - self.dead()
    }

    /// The numbers of the paths that a root names.
    pub(crate) fn root_numbers(self) -> impl Iterator<Item = usize> {
        (0..self.roots()).map(move |root| live_number(self.live() - 1 - root))
    }

    /// The numbers of the references of a path, in order.
    pub(crate) fn references(self, number: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let position = position(number);
        let earlier_live = position.live_before.min(self.live());
        if position.is_dead {
            let dead = position.dead_before;
            found.extend((dead > 0).then(|| dead_number(dead / 2)));
        } else {
            found.extend(self.children(position.live_before).map(live_number));
        }
        let choices = match self.references {
            References::Common => earlier_live.min(COMMON_PATHS),
            References::Dense => earlier_live,
        };
        for step in 0..FURTHER_REFERENCES {
            if choices > 0 {
                found.insert(live_number(random(number, step) % choices));
            }
        }
        found
    }

    /// The children of a live path in the forest. Both are counts of earlier live paths. In the
    /// order from the last path to the first, the forest is stored like a binary heap.
    fn children(self, live: usize) -> impl Iterator<Item = usize> {
        let last = self.live() - 1;
        let first_child = 2 * (last - live) + self.roots();
        let children = [first_child, first_child + 1].into_iter();
        children.filter_map(move |child| last.checked_sub(child))
    }

    /// The numbers of a path and its whole closure.
    pub(crate) fn closure(self, number: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([number]);
        let mut unvisited = vec![number];
        while let Some(number) = unvisited.pop() {
            let references = self.references(number).into_iter();
            unvisited.extend(references.filter(|reference| found.insert(*reference)));
        }
        found
    }
}

/// Whether no root keeps the path.
pub(crate) fn is_dead(number: usize) -> bool {
    DEAD_DIGITS.contains(&(number % 10))
}

/// The hash part and the name of a path.
pub(crate) fn base_name(number: usize) -> String {
    format!("{}-package-{number}-1.{}", hash_part(number), number % 10)
}

/// The contents of the only file of a path: its references.
pub(crate) fn contents(references: &BTreeSet<usize>) -> String {
    let lines = references
        .iter()
        .map(|number| format!("/nix/store/{}\n", base_name(*number)));
    lines.collect()
}

/// Text that looks like a signature of the path.
pub(crate) fn signature(number: usize) -> String {
    let [first, second, third] = [1, 2, 3].map(|part| digits(number, part));
    // The last character of 64 bytes in base 64 has four unused bits.
    format!("scale-1:{first}{second}{}A==", &third[..21])
}

/// A hash part that spreads over the index of the database, as real ones do.
fn hash_part(number: usize) -> String {
    digits(number, 0)
}

/// 32 random digits of Nix's base 32, always the same for a path and a part.
fn digits(number: usize, part: u8) -> String {
    let mut text = [0; 10];
    text[..8].copy_from_slice(&(number as u64).to_le_bytes());
    text[8] = part;
    text[9] = SEED;
    let digit = |byte: &u8| char::from(DIGITS[usize::from(byte % 32)]);
    sha256(&text).iter().map(digit).collect()
}

/// A random value for a step of a path, by the finaliser of SplitMix64.
fn random(number: usize, step: u64) -> usize {
    let mut value = (number as u64 * FURTHER_REFERENCES + step + u64::from(SEED))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ (value >> 31)) as usize
}

/// The number of live and dead paths before a path.
struct Position {
    is_dead: bool,
    live_before: usize,
    dead_before: usize,
}

fn position(number: usize) -> Position {
    let (tens, digit) = (number / 10, number % 10);
    let dead_digits = DEAD_DIGITS.iter().filter(|dead| **dead < digit).count();
    let dead_before = tens * DEAD_DIGITS.len() + dead_digits;
    Position {
        is_dead: is_dead(number),
        live_before: number - dead_before,
        dead_before,
    }
}

fn live_number(live: usize) -> usize {
    live / LIVE_DIGITS.len() * 10 + LIVE_DIGITS[live % LIVE_DIGITS.len()]
}

fn dead_number(dead: usize) -> usize {
    dead / DEAD_DIGITS.len() * 10 + DEAD_DIGITS[dead % DEAD_DIGITS.len()]
}

/// The last digits of the numbers of dead paths.
const DEAD_DIGITS: [usize; 3] = [3, 6, 9];
const LIVE_DIGITS: [usize; 7] = [0, 1, 2, 4, 5, 7, 8];

/// A store of a system with many generations has about as many.
pub(crate) const PATHS_PER_ROOT: usize = 1000;

/// The live paths that most paths refer to: the first ones.
const COMMON_PATHS: usize = 100;

/// With those of the forest, a path has five references on average, as in real stores.
const FURTHER_REFERENCES: u64 = 4;

/// Another seed makes other hash parts and references.
const SEED: u8 = 1;

/// The digits of Nix's base 32.
const DIGITS: &[u8; 32] = b"0123456789abcdfghijklmnpqrsvwxyz";

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(references: References) -> Shape {
        Shape {
            paths: 2000,
            references,
        }
    }

    #[test]
    fn roots_keep_exactly_the_live_paths() {
        for references in [References::Common, References::Dense] {
            let shape = shape(references);
            let roots = shape.root_numbers();
            let kept: BTreeSet<usize> = roots.flat_map(|root| shape.closure(root)).collect();
            let live = (0..shape.paths).filter(|number| !is_dead(*number));
            assert_eq!(kept, live.collect());
            assert_eq!(shape.dead(), 600);
        }
    }

    #[test]
    fn references_have_smaller_numbers() {
        let shape = shape(References::Common);
        for number in 0..shape.paths {
            let references = shape.references(number);
            assert!(references.iter().all(|it| *it < number), "{number}");
        }
        let count: usize = (0..shape.paths).map(|it| shape.references(it).len()).sum();
        assert!((8000..11_000).contains(&count), "{count}");
    }

    #[test]
    fn closures_are_large_only_if_references_are_dense() {
        let size = |references| {
            let shape = shape(references);
            shape
                .root_numbers()
                .map(move |root| shape.closure(root).len())
        };
        assert!(size(References::Common).all(|it| it < 900));
        assert!(size(References::Dense).all(|it| it > 1000));
    }

    #[test]
    fn names_are_valid_and_unique() {
        let names: BTreeSet<String> = (0..2000).map(base_name).collect();
        assert_eq!(names.len(), 2000);
        for name in &names {
            let parsed = floe_format::StorePath::parse(name);
            assert!(parsed.is_ok(), "{name}");
        }
        let parsed = floe_format::Signature::parse(&signature(7));
        assert!(parsed.is_ok(), "{}", signature(7));
    }
}
