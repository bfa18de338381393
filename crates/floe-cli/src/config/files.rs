//! From files and `NIX_CONFIG`, and the files that those include, to a list of assignments.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use floe_format::nix_conf::{self, NIX_CONF_LEN_MAX, NixConfError, Statement};
use floe_store::canon_path;

use super::error::ConfigError;
use super::setting::Origin;

/// A name, what it is set to, and where that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    pub(super) source: Origin,
}

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct ConfReader {
    /// In the order in which they count, the last one most.
    pub(super) assignments: Vec<Assignment>,
    /// Files that are there and cannot be read, and why. Nix passes them over in silence.
    pub(super) unreadable_files: Vec<String>,
    /// How many files were included.
    includes: usize,
}

/// What a line stands in.
enum ConfText {
    File(Arc<Path>),
    NixConfig,
}

impl ConfReader {
    /// Reads a file, if it is there and may be read.
    pub(super) fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        // Includes are relative to the file, which may itself be relative to where floe was called.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.file_at(&path, 0)
    }

    /// Reads the text of `NIX_CONFIG`.
    pub(super) fn variable(&mut self, text: &[u8]) -> Result<(), ConfigError> {
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
            // What cannot be looked at cannot be read either, and is noted there.
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

/// No more than can be parsed, and a byte more: it may be a device without end.
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

/// The variable whose text counts more than all files.
pub(super) const NIX_CONFIG: &str = "NIX_CONFIG";

/// How deep files may include each other. People write one or two; Nix takes any number, and
/// crashes on a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 16;

/// How many files may be included in all: with the depth alone, files that include the next one
/// twice would be read 65,536 times.
const INCLUDES_MAX: usize = 256;
