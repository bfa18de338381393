//! Checks that a source replies as its kind does.

use std::time::Duration;

use crate::access::Access;
use crate::error::NameError;
use crate::file_source::FileSource;
use crate::hydra;
use crate::list::{load, parse_list};
use crate::lock::LockFile;
use crate::memory::NameMemory;
use crate::package::{Origin, SourceError, Unusable};
use crate::resolver::unreadable;
use crate::source_uri::{NameSource, NameSourceUri};

/// Asks a source now: a Hydra for the package `name`, another source for all its packages. Returns
/// what it replies.
///
/// Errors: [`NameError::SourceAway`]; [`NameError::Reply`] for a reply of another form.
pub fn check_source(
    source: &NameSource,
    name: &str,
    (memory, access): (&NameMemory, &dyn Access),
) -> Result<String, NameError> {
    let reply = match &source.uri {
        NameSourceUri::File(path) => {
            let file = FileSource::read(path).map_err(|reason| SourceError::Reply {
                place: path.display().to_string(),
                reason,
            });
            file.map(|file| format!("{} names", file.packages().len()))
        }
        NameSourceUri::Lock(path) => {
            let lock = LockFile::read(path).map_err(|reason| SourceError::Reply {
                place: path.display().to_string(),
                reason,
            });
            lock.map(|lock| format!("{} names", lock.names.len()))
        }
        NameSourceUri::Hydra(uri) => {
            let found = hydra::query(uri, &[name], access).pop();
            match found.unwrap_or(Ok(None)) {
                Ok(Some(reply)) => Ok(format!(
                    "build {} of {name}",
                    reply.candidate.build.unwrap_or_default()
                )),
                Ok(None) => Ok(format!("it replies, and has no package {name}")),
                Err(SourceError::Unusable(Unusable(reason))) => Ok(reason),
                Err(error) => Err(error),
            }
        }
        NameSourceUri::Pins(uri) => match access.pin_names(&uri.cache) {
            Ok(Some(names)) => Ok(format!("{} pins", names.len())),
            Ok(None) => match access.pins(&uri.cache, &[name]).pop() {
                Some(Err(error)) => Err(SourceError::Fetch(error.into())),
                Some(Ok(Some(_))) => Ok(format!("it replies, and has a pin {name}")),
                Some(Ok(None)) | None => Ok(format!("it replies, and has no pin {name}")),
            },
            Err(error) => Err(SourceError::Fetch(error.into())),
        },
        NameSourceUri::List(uri) => {
            let list = load(uri, (memory.directory(), Duration::ZERO), access);
            list.and_then(|list| match list.origin {
                Origin::Offline(reason) => Err(SourceError::Reply {
                    place: uri.to_string(),
                    reason,
                }),
                _ => Ok(format!("{} paths", parse_list(&list.text).count())),
            })
        }
    };
    reply.map_err(|error| unreadable(source, error))
}
