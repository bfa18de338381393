//! The JSON of `nix path-info`.

use floe_format::{JsonFormat, StorePath, sum_of_sizes};
use floe_transfer::Error;
use serde_json::{Map, Value, json};

use super::queried::Queried;
use crate::stdout::print;

/// Prints one object, in which missing paths are null.
pub(crate) fn print_json(
    queried: &Queried<'_>,
    listed: &[StorePath],
    missing: &[&StorePath],
    format: JsonFormat,
) -> anyhow::Result<()> {
    let dir = queried.source.store_dir();
    let key = |path: &StorePath| match format {
        JsonFormat::V1 => dir.full_path(path),
        JsonFormat::V2 | JsonFormat::V3 => path.to_string(),
    };
    let mut paths = Map::new();
    for path in missing {
        paths.insert(key(path), Value::Null);
    }
    for path in listed {
        paths.insert(key(path), to_json(queried, path, format)?);
    }
    print(match format {
        JsonFormat::V1 => Value::Object(paths),
        JsonFormat::V2 | JsonFormat::V3 => {
            json!({ "info": paths, "storeDir": dir.as_str(), "version": format.number() })
        }
    })
}

fn to_json(queried: &Queried<'_>, path: &StorePath, format: JsonFormat) -> Result<Value, Error> {
    let dir = queried.source.store_dir();
    let has_files = queried.source.facts().has_nar_files;
    let mut value = if has_files {
        queried.narinfo(path).to_json_of(dir, format)
    } else {
        queried.info(path)?.to_json_of(dir, format)
    };
    if queried.columns.closure_size {
        let closure = queried.closure(path);
        let size: u64 = sum_of_sizes(closure.iter().map(|it| it.info.nar_size));
        value["closureSize"] = size.into();
        if has_files {
            let sizes = closure.iter().map(|it| it.file_size.unwrap_or_default());
            value["closureDownloadSize"] = sum_of_sizes(sizes).into();
        }
    }
    Ok(value)
}
