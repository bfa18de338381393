//! `floe cache info`: the size and the age of a cache.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use floe_format::sum_of_sizes;
use floe_transfer::{CacheContents, Size};
use serde_json::json;

use super::ChosenCache;
use super::args::CacheInfoArgs;
use crate::messages::counted;
use crate::stdout::print;

pub(super) fn run(args: &CacheInfoArgs) -> anyhow::Result<()> {
    let chosen = ChosenCache::of(&args.of, None)?;
    let cache = chosen.open(true)?;
    let contents = cache.contents()?;
    let sizes = Sizes::of(&contents, SystemTime::now());
    let cost = args
        .price
        .map(|price| sizes.stored_bytes() as f64 / 1e9 * price);
    if args.of.json {
        let ages = sizes.ages.iter().map(|(days, paths, bytes)| {
            json!({ "olderThanDays": days, "paths": paths, "fileBytes": bytes })
        });
        return print(json!({
            "cache": chosen.store.to_string(),
            "storeDir": cache.dir().as_str(),
            "paths": contents.narinfos.len(),
            "narBytes": sizes.nar_bytes,
            "fileBytes": sizes.file_bytes,
            "files": contents.nars.len(),
            "unusedFiles": sizes.unused,
            "unusedBytes": sizes.unused_bytes,
            "unusableNarinfos": contents.unusable.len(),
            "ages": ages.collect::<Vec<_>>(),
            "monthlyCost": cost,
        }));
    }
    print(format_args!("{}", chosen.store))?;
    print(format_args!(
        "  {} for {}: {}, {} compressed, in {}",
        counted(contents.narinfos.len(), "path"),
        cache.dir(),
        Size(sizes.nar_bytes),
        Size(sizes.file_bytes),
        counted(contents.nars.len(), "file"),
    ))?;
    for (days, paths, bytes) in &sizes.ages {
        print(format_args!(
            "  older than {days} days: {} ({})",
            counted(*paths, "path"),
            Size(*bytes)
        ))?;
    }
    if sizes.unused > 0 {
        print(format_args!(
            "  unused: {} ({}) that no narinfo names",
            counted(sizes.unused, "file"),
            Size(sizes.unused_bytes)
        ))?;
    }
    if !contents.unusable.is_empty() {
        let count = counted(contents.unusable.len(), "narinfo");
        print(format_args!(
            "  unusable: {count}; floe cache verify lists them"
        ))?;
    }
    if let Some(cost) = cost {
        print(format_args!("  cost of a month: {cost:.2}"))?;
    }
    Ok(())
}

/// The sizes of a cache, in bytes.
struct Sizes {
    nar_bytes: u64,
    /// Those of the files that narinfos name, each once.
    file_bytes: u64,
    unused: usize,
    unused_bytes: u64,
    /// Ages in days, each with the number of older paths and the sizes of their files.
    ages: Vec<(u64, usize, u64)>,
}

impl Sizes {
    fn of(contents: &CacheContents, now: SystemTime) -> Sizes {
        let narinfos = || contents.narinfos.values();
        // A file may belong to several narinfos.
        let mut files: HashMap<&str, u64> = HashMap::new();
        for found in narinfos() {
            let listed = contents.nars.get(&found.narinfo.url);
            let len = listed.and_then(|file| file.len).or(found.narinfo.file_size);
            files.insert(&found.narinfo.url, len.unwrap_or_default());
        }
        let unused = contents.unreferenced_nars();
        let len = |name: &str| contents.nars.get(name).and_then(|file| file.len);
        let ages = AGES.iter().filter_map(|days| {
            let limit = now.checked_sub(Duration::from_secs(days * 86_400))?;
            let old = narinfos().filter(|it| it.modified.is_some_and(|time| time < limit));
            let old: Vec<_> = old.collect();
            let bytes = sum_of_sizes(old.iter().filter_map(|it| it.narinfo.file_size));
            (!old.is_empty()).then_some((*days, old.len(), bytes))
        });
        Sizes {
            nar_bytes: sum_of_sizes(narinfos().map(|it| it.narinfo.info.nar_size)),
            file_bytes: sum_of_sizes(files.values().copied()),
            unused: unused.len(),
            unused_bytes: sum_of_sizes(unused.iter().filter_map(|name| len(name))),
            ages: ages.collect(),
        }
    }

    /// The bytes that the cache pays for.
    fn stored_bytes(&self) -> u64 {
        self.file_bytes.saturating_add(self.unused_bytes)
    }
}

/// The ages that are shown, in days.
const AGES: [u64; 4] = [7, 30, 90, 365];
