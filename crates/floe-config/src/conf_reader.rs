//! Reads configuration files, `NIX_CONFIG` and included files into a list of assignments.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use floe_format::nix_conf::{self, NIX_CONF_LEN_MAX, NixConfError, Statement};
use floe_store::canon_path;

use crate::environment::NIX_CONFIG;
use crate::error::ConfigError;
use crate::setting::Origin;

/// A name, its value, and where both stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
    pub(crate) source: Origin,
}

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

/// The text that a line stands in.
enum ConfText {
    File(Arc<Path>),
    NixConfig,
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
        self.text(text, &ConfText::NixConfig, 0)
    }

    fn file_at(&mut self, path: &Path, depth: usize) -> Result<(), ConfigError> {
        match read(path) {
            Ok(text) => self.text(&text, &ConfText::File(path.into()), depth),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => {
                self.unreadable_files
                    .push(format!("{}: {error}", path.display()));
                Ok(())
            }
        }
    }

    fn text(&mut self, text: &[u8], origin: &ConfText, depth: usize) -> Result<(), ConfigError> {
        let lines = nix_conf::parse(text).map_err(|error| match error {
            NixConfError::Line { number, fault } => ConfigError::Line {
                at: origin.at(number),
                fault,
            },
            error @ NixConfError::TooLong(_) => ConfigError::Text {
                origin: origin.name(),
                error,
            },
        })?;
        for line in lines {
            let source = origin.at(line.number);
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
                    let path = match origin {
                        ConfText::NixConfig if path.is_relative() => {
                            let path = path.to_owned();
                            return Err(ConfigError::Relative { at: source, path });
                        }
                        ConfText::NixConfig => path.to_owned(),
                        ConfText::File(file) => file.with_file_name("").join(path),
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
        if depth == INCLUDE_DEPTH_MAX {
            return Err(ConfigError::TooDeep {
                at,
                max: INCLUDE_DEPTH_MAX,
            });
        }
        if self.includes > INCLUDES_MAX {
            return Err(ConfigError::TooMany {
                at,
                max: INCLUDES_MAX,
            });
        }
        match fs::symlink_metadata(path) {
            Err(error) if is_missing(&error) && !may_be_missing => Err(ConfigError::Missing {
                at,
                path: path.to_owned(),
            }),
            // If the file cannot be examined, reading it fails too and notes the reason.
            _ => self.file_at(path, depth + 1),
        }
    }
}

impl ConfText {
    fn at(&self, line: usize) -> Origin {
        match self {
            ConfText::File(path) => Origin::File {
                path: path.clone(),
                line,
            },
            ConfText::NixConfig => Origin::Variable {
                name: NIX_CONFIG,
                line: Some(line),
            },
        }
    }

    fn name(&self) -> String {
        match self {
            ConfText::File(path) => path.display().to_string(),
            ConfText::NixConfig => NIX_CONFIG.to_owned(),
        }
    }
}

/// Reads at most one byte more than can be parsed: the file may be an endless device.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = NIX_CONF_LEN_MAX as u64 + 1;
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
