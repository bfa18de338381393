//! The answer as one JSON object.

use floe_copy::{PathAvailability, SourceReply, SourceResult};
use floe_format::StorePath;
use serde_json::{Map, Value, json};

use super::Explanation;
use super::closure::InstallClosure;
use super::trust::{ShownSignature, SignatureState};
use crate::stdout::print;
use crate::times;

pub(super) fn print_json(explanation: &Explanation<'_>) -> anyhow::Result<()> {
    let mut object = Map::new();
    for path in &explanation.paths {
        let shown = explanation.dir.full_path(path);
        object.insert(shown, describe(explanation, path)?);
    }
    print(Value::Object(object))
}

fn describe(explanation: &Explanation<'_>, path: &StorePath) -> anyhow::Result<Value> {
    let Some(availability) = explanation.found.get(path) else {
        return Ok(Value::Null);
    };
    let is_valid = availability.registered.is_some();
    let keepers = if is_valid {
        explanation.keepers(path)?
    } else {
        None
    };
    let keepers = keepers.map(|keepers| {
        let keepers = keepers.iter().map(|keeper| {
            let chain = keeper.chain.iter().map(|it| explanation.dir.full_path(it));
            json!({
                "root": keeper.root.place.to_string(),
                "chain": chain.collect::<Vec<_>>(),
            })
        });
        keepers.collect::<Vec<_>>()
    });
    let closure = InstallClosure::of(path, &explanation.found);
    let missing = closure.missing.iter().map(|(path, availability)| {
        let referrer = availability.referrer.as_ref();
        json!({
            "path": explanation.dir.full_path(path),
            "neededBy": referrer.map(|it| explanation.dir.full_path(it)),
            "caches": caches(explanation, availability),
        })
    });
    Ok(json!({
        "store": explanation.store.1,
        "valid": is_valid,
        "keptBy": keepers,
        "caches": caches(explanation, availability),
        "closure": {
            "valid": closure.valid,
            "toFetch": closure.to_fetch,
            "downloadBytes": closure.download_bytes,
            "narBytes": closure.nar_bytes,
            "missing": missing.collect::<Vec<_>>(),
        },
        "installable": closure.missing.is_empty(),
    }))
}

fn caches(explanation: &Explanation<'_>, availability: &PathAvailability) -> Vec<Value> {
    let replies = explanation.sources.list.iter().zip(&availability.replies);
    let replies = replies.map(|(source, reply)| cache(explanation, (&source.name(), reply)));
    replies.collect()
}

fn cache(explanation: &Explanation<'_>, (name, reply): (&str, &SourceReply)) -> Value {
    let narinfo = reply.narinfo.as_ref();
    let signatures = narinfo.map(|it| explanation.trust.signatures(it, explanation.dir));
    let reason = match &reply.result {
        SourceResult::Refused(error) => Some(error.to_string()),
        SourceResult::Usable | SourceResult::Absent => None,
    };
    let remembered = reply.remembered.map(
        |remembered| json!({ "at": times::seconds(remembered.at), "hasPath": remembered.has_path }),
    );
    json!({
        "cache": name,
        "hasPath": narinfo.is_some(),
        "usable": matches!(reply.result, SourceResult::Usable),
        "reason": reason,
        "narSize": narinfo.map(|it| it.info.nar_size),
        "downloadSize": narinfo.and_then(|it| it.download_size()),
        "ca": narinfo.and_then(|it| it.info.ca).map(|ca| ca.to_string()),
        "signatures": signatures.iter().flatten().map(signature).collect::<Vec<_>>(),
        "remembered": remembered,
    })
}

fn signature(signature: &ShownSignature) -> Value {
    let (is_trusted, origin) = match &signature.state {
        SignatureState::Trusted(origin) => (true, Some(origin)),
        SignatureState::Unknown | SignatureState::Wrong => (false, None),
    };
    json!({ "key": signature.key, "trusted": is_trusted, "origin": origin })
}
