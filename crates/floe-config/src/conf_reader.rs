//! Reads configuration files, `NIX_CONFIG` and included files into a list of assignments.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;

use floe_format::nix_conf::{self, NIX_CONF_LEN_MAX, NixConfError, Statement};
use floe_store::canon_path;

use crate::error::ConfigError;
use crate::origin::{NIX_CONFIG, Origin};
use crate::setting::Assignment;

/// Reads configuration texts, and keeps what they say.
#[derive(Debug, Default)]
pub(crate) struct ConfReader {
    /// All assignments. Later ones override earlier ones.
    pub(crate) assignments: Vec<Assignment>,
    /// Ignored files that exist and cannot be read, each with the reason.
    pub(crate) unreadable_files: Vec<String>,
    /// The number of included files so far.
    includes: usize,
}

impl ConfReader {
    /// Reads a file. Ignores one that does not exist or cannot be read.
    ///
    /// Errors: [`ConfigError`] about a line.
    pub(crate) fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        // Includes are relative to the file, so its own path must be absolute.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.file_at(&path, 0)
    }

    /// Reads the text of `NIX_CONFIG`.
    ///
    /// Errors: [`ConfigError`] about a line.
    pub(crate) fn variable(&mut self, text: &[u8]) -> Result<(), ConfigError> {
        self.text(text, None, 0)
    }

    fn file_at(&mut self, path: &Path, depth: usize) -> Result<(), ConfigError> {
        match read(path) {
            Ok(text) => self.text(&text, Some(&path.into()), depth),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => {
                self.unreadable_files
                    .push(format!("{}: {error}", path.display()));
                Ok(())
            }
        }
    }

    /// Reads the text of a file, or of `NIX_CONFIG` if `file` is `None`.
    fn text(
        &mut self,
        text: &[u8],
        file: Option<&Arc<Path>>,
        depth: usize,
    ) -> Result<(), ConfigError> {
        let at = |line| match file.cloned() {
            Some(path) => Origin::File { path, line },
            None => Origin::NixConfig(line),
        };
        let lines = nix_conf::parse(text).map_err(|error| match error {
            NixConfError::Line { number, fault } => ConfigError::Syntax {
                at: at(number).to_string(),
                reason: fault.to_string(),
            },
            error @ NixConfError::TooLong(_) => ConfigError::Syntax {
                at: file.map_or(NIX_CONFIG.into(), |path| path.display().to_string()),
                reason: error.to_string(),
            },
        })?;
        for line in lines {
            let source = at(line.number);
            match line.statement {
                Statement::Set { name, value } => self.assignments.push(Assignment {
                    name: String::from_utf8_lossy(name).into_owned(),
                    value,
                    source,
                }),
                Statement::Include {
                    path,
                    may_be_missing,
                } => {
                    let path = Path::new(OsStr::from_bytes(path));
                    let path = match file {
                        Some(file) => file.with_file_name("").join(path),
                        None if path.is_absolute() => path.to_owned(),
                        None => {
                            let reason = format!(
                                "{}: NIX_CONFIG has no directory; write an absolute path",
                                path.display()
                            );
                            return Err(ConfigError::Include { at: source, reason });
                        }
                    };
                    self.include(&canon_path(&path), may_be_missing, (source, depth))?;
                }
            }
        }
        Ok(())
    }

    fn include(
        &mut self,
        path: &Path,
        may_be_missing: bool,
        (at, depth): (Origin, usize),
    ) -> Result<(), ConfigError> {
        self.includes += 1;
        // If the file cannot be examined, reading it fails too and notes the reason.
        let is_absent = || fs::symlink_metadata(path).is_err_and(|error| is_missing(&error));
        let reason = if depth == INCLUDE_DEPTH_MAX {
            format!(
                "files more than {INCLUDE_DEPTH_MAX} deep (INCLUDE_DEPTH_MAX); check whether a \
                 file includes itself"
            )
        } else if self.includes > INCLUDES_MAX {
            format!("more than {INCLUDES_MAX} files (INCLUDES_MAX)")
        } else if !may_be_missing && is_absent() {
            format!(
                "{}: it does not exist; write !include for a file that may be missing",
                path.display()
            )
        } else {
            return self.file_at(path, depth + 1);
        };
        Err(ConfigError::Include { at, reason })
    }
}

/// Reads at most one byte more than can be parsed. A named pipe without a writer is refused,
/// because it would be waited for; a shell makes pipes with descriptors, and writes into them.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = NIX_CONF_LEN_MAX as u64 + 1;
    let of_shell = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    if fs::metadata(path)?.file_type().is_fifo() && !of_shell {
        return Err(io::Error::other("it is a named pipe"));
    }
    File::open(path)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// How deep files may include each other. Real ones do so once or twice. Nix has no limit, and
/// crashes on a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 16;

/// How many files may be included in all. With the limit of the depth alone, 16 files that each
/// include the next one twice would lead to 65,536 reads.
const INCLUDES_MAX: usize = 256;
