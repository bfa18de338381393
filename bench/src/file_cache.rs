//! Binary caches in directories, as benchmarks change and check them.

use std::fs;
use std::path::{Path, PathBuf};

use floe_bench::BenchError;

/// The number of narinfos; 0 if there is no such cache.
pub(crate) fn count_narinfos(cache: &Path) -> usize {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let extensions = entries.filter(|entry| {
        let path = entry.path();
        path.extension().is_some_and(|it| it == "narinfo")
    });
    extensions.count()
}

/// Removes the narinfo and the NAR of a store path.
pub(crate) fn remove_path(cache: &Path, path: &str) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::Result(error.to_string());
    let narinfo = narinfo(cache, path);
    let text = fs::read_to_string(&narinfo).map_err(failed)?;
    let url = text.lines().find_map(|line| line.strip_prefix("URL: "));
    let url = url.ok_or_else(|| BenchError::Result("a narinfo has no URL".into()))?;
    fs::remove_file(cache.join(url)).map_err(failed)?;
    fs::remove_file(&narinfo).map_err(failed)
}

/// The place of the narinfo of a store path.
fn narinfo(cache: &Path, path: &str) -> PathBuf {
    let name = path.rsplit('/').next();
    let hash_part = name.and_then(|name| name.split('-').next());
    cache.join(format!("{}.narinfo", hash_part.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_path_has_neither_narinfo_nor_nar() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path();
        fs::create_dir(cache.join("nar")).unwrap();
        fs::write(cache.join("nar/1.nar"), "").unwrap();
        fs::write(cache.join("abc.narinfo"), "URL: nar/1.nar\n").unwrap();
        assert_eq!(count_narinfos(cache), 1);
        remove_path(cache, "/nix/store/abc-name").unwrap();
        assert_eq!(count_narinfos(cache), 0);
        assert!(!cache.join("nar/1.nar").exists());
        assert!(remove_path(cache, "/nix/store/abc-name").is_err());
    }
}
