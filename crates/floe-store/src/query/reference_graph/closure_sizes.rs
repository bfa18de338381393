//! The sizes of the closures of all paths at once.
//!
//! A walk from each path would take the square of the number of paths. Instead, some thousand paths
//! are followed through the whole graph together: a path reaches those of them that itself or a
//! reference reaches, which is one operation on the bits of 64 of them. The size of their NARs is
//! the sum of a table entry for each 8 bits.

use floe_format::StorePath;

use super::{ClosureSize, ReferenceGraph, index};

impl ReferenceGraph {
    /// Returns the size of the closure of each of some paths.
    pub fn closure_sizes<'a>(
        &self,
        paths: impl ExactSizeIterator<Item = &'a StorePath>,
    ) -> Vec<ClosureSize> {
        // All sizes take one pass through the graph for each 64 paths, or for more.
        let is_worth_it = paths.len() > PATHS_MIN.max(self.rows.len() / 64);
        match is_worth_it.then(|| self.all_closure_sizes()).flatten() {
            None => paths.map(|path| self.closure_size([path])).collect(),
            Some(sizes) => {
                let size = |path| self.numbers.get(path).map(|number| sizes[index(*number)]);
                paths.map(|path| size(path).unwrap_or_default()).collect()
            }
        }
    }

    /// Returns the sizes of the closures of all paths, in the order of their names; `None` if paths
    /// refer to each other in a circle, which only a damaged database has.
    fn all_closure_sizes(&self) -> Option<Vec<ClosureSize>> {
        let order = self.references_first()?;
        let mut places = vec![0; order.len()];
        for (place, number) in order.iter().enumerate() {
            places[index(*number)] = place;
        }
        let mut sizes = vec![ClosureSize::default(); order.len()];
        let words = (MEMORY_MAX / 8 / order.len().max(1)).clamp(1, WORDS_MAX);
        let mut reached = vec![0_u64; order.len() * words];
        for first in (0..order.len()).step_by(words * 64) {
            let followed = &order[first..order.len().min(first + words * 64)];
            let table = SizeTable::new(followed.iter().map(|it| self.rows[index(*it)].nar_size));
            // References come first, so no path before reaches one of these.
            for (offset, number) in order[first..].iter().enumerate() {
                let (before, own) = reached.split_at_mut(offset * words);
                let own = &mut own[..words];
                own.fill(0);
                if offset < followed.len() {
                    own[offset / 64] |= 1 << (offset % 64);
                }
                for reference in self.of(*number) {
                    if let Some(offset) = places[index(*reference)].checked_sub(first) {
                        let bits = &before[offset * words..][..words];
                        own.iter_mut()
                            .zip(bits)
                            .for_each(|(own, bits)| *own |= bits);
                    }
                }
                let size = &mut sizes[index(*number)];
                size.paths += own.iter().map(|it| it.count_ones() as usize).sum::<usize>();
                size.nar_bytes = size.nar_bytes.saturating_add(table.sum(own));
            }
        }
        Some(sizes)
    }

    /// Returns the paths, each after its references; `None` if there is a circle.
    fn references_first(&self) -> Option<Vec<u32>> {
        let mut left: Vec<usize> = self.starts.windows(2).map(|it| it[1] - it[0]).collect();
        let mut referrers = vec![Vec::new(); self.rows.len()];
        let mut order = Vec::with_capacity(self.rows.len());
        for number in (0..).take(self.rows.len()) {
            for reference in self.of(number) {
                referrers[index(*reference)].push(number);
            }
            if self.of(number).is_empty() {
                order.push(number);
            }
        }
        let mut next = 0;
        while let Some(number) = order.get(next).copied() {
            next += 1;
            for referrer in &referrers[index(number)] {
                left[index(*referrer)] -= 1;
                if left[index(*referrer)] == 0 {
                    order.push(*referrer);
                }
            }
        }
        (order.len() == self.rows.len()).then_some(order)
    }
}

/// The sums of NAR sizes for each value of the bytes of a bit set.
struct SizeTable {
    /// For each byte, the sum for each of its values.
    sums: Vec<[u64; 256]>,
    /// For each word, the sum of all its bits.
    word_sums: Vec<u64>,
}

impl SizeTable {
    /// Makes the table of the sizes that the bits stand for.
    fn new(sizes: impl Iterator<Item = u64>) -> SizeTable {
        let sizes: Vec<u64> = sizes.collect();
        let sums = sizes.chunks(8).map(|sizes| {
            let mut sums = [0_u64; 256];
            for value in 1..256_usize {
                // The sum without the lowest bit is known already.
                let size = sizes.get(value.trailing_zeros() as usize);
                let size = size.copied().unwrap_or_default();
                sums[value] = sums[value & (value - 1)].saturating_add(size);
            }
            sums
        });
        let word_sum = |sizes: &[u64]| sizes.iter().fold(0, |sum: u64, it| sum.saturating_add(*it));
        SizeTable {
            sums: sums.collect(),
            word_sums: sizes.chunks(64).map(word_sum).collect(),
        }
    }

    /// Returns the sum of the sizes of a bit set.
    fn sum(&self, bits: &[u64]) -> u64 {
        let mut sum = 0_u64;
        for (place, (word, all)) in bits.iter().zip(&self.word_sums).enumerate() {
            // Most words of a large closure have no bit, or all of them.
            let part = match *word {
                0 => 0,
                u64::MAX => *all,
                word => word
                    .to_le_bytes()
                    .iter()
                    .zip(&self.sums[place * 8..])
                    .fold(0, |sum: u64, (byte, sums)| {
                        sum.saturating_add(sums[usize::from(*byte)])
                    }),
            };
            sum = sum.saturating_add(part);
        }
        sum
    }
}

/// For fewer paths, a walk from each is fast enough.
const PATHS_MIN: usize = 100;

/// The memory for the bits of all paths, in bytes.
const MEMORY_MAX: usize = 64 * 1024 * 1024;

/// With more words, the table would not fit into the second-level cache.
const WORDS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use floe_format::StorePath;

    use super::super::{ClosureRow, ClosureRows, ReferenceGraph};

    /// Makes a graph of `len` paths, each with some references to paths before it.
    fn graph(len: u32, references: impl Fn(u32) -> Vec<u32>) -> ReferenceGraph {
        let mut closure = ClosureRows::default();
        for number in 0..len {
            closure.rows.push(ClosureRow {
                // The names are not in the order of the references.
                path: StorePath::parse(&format!("{:032}-a", number.wrapping_mul(7919) % 100_003))
                    .unwrap(),
                nar_size: u64::from(number) * 1_000_003,
                registration_time: None,
            });
            closure.starts.push(closure.references.len());
            closure.references.extend(references(number));
        }
        closure.starts.push(closure.references.len());
        ReferenceGraph::new(closure)
    }

    #[test]
    fn sizes_equal_those_of_single_closures() {
        type References = fn(u32) -> Vec<u32>;
        let kinds: [References; 4] = [
            |_| vec![],
            |number| number.checked_sub(1).into_iter().collect(),
            |number| {
                (0..number.min(9))
                    .map(|it| number * (it + 1) / 11)
                    .collect()
            },
            |number| (number.saturating_sub(3)..number).collect(),
        ];
        for references in kinds {
            for len in [0, 1, 63, 64, 65, 5000] {
                let graph = graph(len, references);
                let sizes = graph.all_closure_sizes().unwrap();
                assert_eq!(sizes.len(), graph.rows.len());
                for (row, size) in graph.rows.iter().zip(sizes).step_by(1 + len as usize / 200) {
                    assert_eq!(size, graph.closure_size([&row.path]), "{}", row.path);
                }
            }
        }
    }

    #[test]
    fn first_chain_by_name_is_returned() {
        // The last path refers to two paths in the middle, not in the order of their names.
        let graph = graph(4, |number| match number {
            0 => vec![],
            3 => vec![2, 1],
            _ => vec![0],
        });
        let paths: Vec<&StorePath> = graph.rows.iter().map(|row| &row.path).collect();
        let chain = graph.chain(paths[3], paths[0]);
        assert_eq!(chain, Some(vec![paths[3], paths[1], paths[0]]));
    }

    #[test]
    fn circle_has_no_sizes() {
        let circle = graph(3, |number| vec![(number + 1) % 3]);
        assert!(circle.all_closure_sizes().is_none());
        let paths: Vec<&StorePath> = circle.rows.iter().map(|row| &row.path).collect();
        let sizes = circle.closure_sizes(paths.iter().copied());
        assert!(sizes.iter().all(|size| size.paths == 3));
    }
}
