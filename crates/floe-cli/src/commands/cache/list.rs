//! `floe cache list`: the paths of a cache.

use floe_transfer::CachedPath;
use serde_json::{Value, json};

use super::ChosenCache;
use super::args::CacheListArgs;
use crate::display::eprint_line;
use crate::messages::counted;
use crate::stdout::{LongOutput, print};
use crate::times;

pub(super) fn run(args: &CacheListArgs) -> anyhow::Result<()> {
    let chosen = ChosenCache::of(&args.of, None)?;
    let cache = chosen.open(true)?;
    let contents = cache.contents()?;
    let mut paths: Vec<&CachedPath> = contents.narinfos.values().collect();
    paths.sort_by_key(|path| (path.modified, path.narinfo.info.path.clone()));
    let dir = cache.dir();
    if args.of.json {
        let paths = paths.iter().map(|path| {
            let info = &path.narinfo.info;
            json!({
                "path": dir.full_path(&info.path),
                "narSize": info.nar_size,
                "downloadSize": path.narinfo.file_size,
                "modified": path.modified.map(times::seconds),
                "url": path.narinfo.url,
            })
        });
        return print(json!({ "paths": paths.collect::<Vec<Value>>() }));
    }
    let mut output = LongOutput::new();
    for path in &paths {
        let info = &path.narinfo.info;
        let date = path.modified.map_or("?".to_owned(), times::date);
        let size = path.narinfo.file_size.map(|size| size.to_string());
        let line = format!(
            "{date:10}  {:>12}  {:>12}  {}\n",
            info.nar_size,
            size.as_deref().unwrap_or("?"),
            dir.full_path(&info.path)
        );
        if output.write(line).is_break() {
            break;
        }
    }
    output.finish()?;
    eprint_line(format_args!(
        "{} in {}",
        counted(paths.len(), "path"),
        chosen.store
    ));
    Ok(())
}
