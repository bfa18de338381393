//! Queries of a Hydra: the newest successful build of each package.

use std::sync::Arc;
use std::time::Duration;

use floe_cache::DocumentRequest;
use floe_transfer::url::redact_credentials;

use super::HydraUri;
use super::build::Build;
use crate::access::Access;
use crate::package::{Candidate, QueryResult, SourceError, Unusable};

/// Queries the newest successful builds of packages, all at once.
pub(crate) fn query(uri: &HydraUri, names: &[&str], access: &dyn Access) -> Vec<QueryResult> {
    let urls = names.iter().map(|name| uri.latest_url(name)).collect();
    let newest = get_all(urls, access, Build::parse);
    let absent = names.iter().zip(&newest);
    let absent = absent.filter(|(_, found)| matches!(found, Ok(None)));
    let urls: Vec<String> = absent.map(|(name, _)| uri.recent_url(name)).collect();
    let mut recent = if urls.is_empty() {
        Vec::new().into_iter()
    } else {
        get_all(urls, access, Build::parse_list).into_iter()
    };
    let results = names.iter().zip(newest);
    let results = results.map(|(name, found)| match found? {
        Some(build) if build.has_succeeded() => Ok(Some(candidate(uri, build)?.into())),
        Some(build) => Err(no_success(uri, name, &build)),
        None => absent_job(uri, name, recent.next().unwrap_or(Ok(None))?),
    });
    results.collect()
}

/// Tells a job without a successful build from one that does not exist: a Hydra says 404 for both.
fn absent_job(uri: &HydraUri, name: &str, recent: Option<Vec<Build>>) -> QueryResult {
    let recent = recent.unwrap_or_default();
    match recent.first() {
        Some(newest) if !recent.iter().any(Build::has_succeeded) => {
            Err(no_success(uri, name, newest))
        }
        _ => Ok(None),
    }
}

fn no_success(uri: &HydraUri, name: &str, newest: &Build) -> SourceError {
    SourceError::Unusable(Unusable(format!(
        "no build of {} has succeeded; the newest one, build {}, {}",
        uri.job(name),
        newest.id,
        newest.state()
    )))
}

/// Returns the newest successful build before one, if the Hydra remembers it.
pub(crate) fn query_before(
    uri: &HydraUri,
    name: &str,
    id: u64,
    access: &dyn Access,
) -> Result<Option<Candidate>, SourceError> {
    let recent = get(uri.recent_url(name), access, Build::parse_list)?.unwrap_or_default();
    let mut successful = recent.iter().filter(|build| build.has_succeeded());
    let Some(before) = successful.find(|build| build.id < id) else {
        return Ok(None);
    };
    let build = get(uri.build_url(before.id), access, Build::parse)?;
    build.map(|build| candidate(uri, build)).transpose()
}

/// Checks a successful build, and returns its outputs.
fn candidate(uri: &HydraUri, build: Build) -> Result<Candidate, SourceError> {
    let wanted = uri.system();
    if let Some(system) = build.system.as_ref().filter(|system| **system != wanted) {
        return Err(SourceError::Unusable(Unusable(format!(
            "build {} is for {system}, and this machine needs {wanted}",
            build.id
        ))));
    }
    let outputs = build.buildoutputs.into_iter();
    let outputs = outputs.filter_map(|(name, output)| Some((name, output.path?)));
    Ok(Candidate {
        outputs: outputs.collect(),
        nix_name: build.nixname,
        built_at: build.stoptime.or(build.timestamp),
        build: Some(build.id),
        ..Candidate::default()
    })
}

fn get<T>(
    url: String,
    access: &dyn Access,
    parse: fn(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, SourceError> {
    let found = get_all(vec![url], access, parse).pop();
    found.unwrap_or(Ok(None))
}

/// Gets documents, all at once, and parses them.
fn get_all<T>(
    urls: Vec<String>,
    access: &dyn Access,
    parse: fn(&[u8]) -> Result<T, String>,
) -> Vec<Result<Option<T>, SourceError>> {
    let requests = urls.iter().map(|url| DocumentRequest {
        url: url.clone(),
        accept: "application/json",
        known_etag: None,
        len_max: BUILD_LEN_MAX,
        deadline: DEADLINE,
    });
    let replies = match access.fetch(requests.collect()) {
        Ok(replies) => replies,
        Err(error) => {
            let error = Arc::new(error);
            let failed = urls.iter();
            return failed
                .map(|_| Err(SourceError::Fetch(error.clone())))
                .collect();
        }
    };
    let parsed = urls.iter().zip(replies);
    let parsed = parsed.map(|(url, reply)| {
        let document = reply.map_err(|error| SourceError::Fetch(error.into()))?;
        let body = document.into_body();
        let parsed = body.map(|body| parse(&body)).transpose();
        parsed.map_err(|reason| SourceError::Reply {
            place: redact_credentials(url),
            reason,
        })
    });
    parsed.collect()
}

/// The longest time until a reply is there, with all attempts.
const DEADLINE: Duration = Duration::from_secs(30);

/// The largest description of builds in bytes. Usual ones have about 2 KiB.
const BUILD_LEN_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use floe_cache::Document;

    use super::*;

    fn found(text: &str) -> Document {
        Document::Found {
            body: text.as_bytes().to_vec(),
            etag: None,
        }
    }

    /// Replays replies; any other URL is missing.
    fn run(name: &str, replies: &[(&str, &str)]) -> QueryResult {
        let uri = "http://h.example/p/j?prefix=n.&system=x86_64-linux";
        let uri = HydraUri::parse(uri).unwrap();
        let replies: BTreeMap<&str, &str> = replies.iter().copied().collect();
        let fetch = |requests: Vec<DocumentRequest>| {
            let replies = requests.iter().map(|request| {
                let path = request.url.strip_prefix("http://h.example/").unwrap();
                Ok(replies
                    .get(path)
                    .map_or(Document::Absent, |text| found(text)))
            });
            Ok(replies.collect())
        };
        query(&uri, &[name], &fetch).pop().unwrap()
    }

    const LATEST: &str = "job/p/j/n.jq.x86_64-linux/latest";
    const RECENT: &str = "api/latestbuilds?nr=20&project=p&jobset=j&job=n.jq.x86_64-linux";
    const FIVE: &str = r#"{"id":5,"finished":1,"buildstatus":0,"system":"x86_64-linux",
        "nixname":"jq-1.6","stoptime":50,"buildoutputs":{"out":{"path":"/nix/store/5"}}}"#;

    #[test]
    fn newest_successful_build_is_used() {
        let found = run("jq", &[(LATEST, FIVE)]).unwrap().unwrap().candidate;
        assert_eq!(found.outputs["out"], "/nix/store/5");
        assert_eq!((found.build, found.built_at), (Some(5), Some(50)));
        assert!(run("other", &[(LATEST, FIVE)]).unwrap().is_none());
    }

    #[test]
    fn job_without_a_successful_build_is_named() {
        let failed = r#"{"id":7,"finished":1,"buildstatus":1}"#;
        let running = r#"{"id":7,"finished":0}"#;
        for (newest, state) in [(failed, "failed"), (running, "has not finished")] {
            let list = format!("[{newest}]");
            for replies in [(LATEST, newest), (RECENT, &list)] {
                let error = run("jq", &[replies]).unwrap_err();
                let SourceError::Unusable(Unusable(reason)) = error else {
                    panic!("{error:?}")
                };
                let expected =
                    "no build of n.jq.x86_64-linux has succeeded; the newest one, build 7";
                assert_eq!(reason, format!("{expected}, {state}"));
            }
        }
        assert!(run("jq", &[(RECENT, "[]")]).unwrap().is_none());
    }

    #[test]
    fn absent_jobs_are_queried_together() {
        let uri = HydraUri::parse("http://h.example/p/j").unwrap();
        let rounds = std::cell::Cell::new(0);
        let fetch = |requests: Vec<DocumentRequest>| {
            rounds.set(rounds.get() + 1);
            Ok(requests.iter().map(|_| Ok(Document::Absent)).collect())
        };
        let found = query(&uri, &["a", "b", "c"], &fetch);
        assert!(found.len() == 3 && found.iter().all(|it| matches!(it, Ok(None))));
        assert_eq!(rounds.get(), 2);
    }

    #[test]
    fn earlier_build_is_the_newest_success_before_one() {
        let uri = HydraUri::parse("http://h.example/p/j?prefix=n.&system=x86_64-linux").unwrap();
        let recent = r#"[{"id":8,"finished":1,"buildstatus":0},{"id":7,"finished":1,
            "buildstatus":0},{"id":6,"finished":1,"buildstatus":2},{"id":5,"finished":1,
            "buildstatus":0}]"#;
        let fetch = |requests: Vec<DocumentRequest>| {
            let replies = requests.iter().map(|request| {
                let is_build = request.url.ends_with("/build/5");
                let text = if is_build { FIVE } else { recent };
                Ok(found(text))
            });
            Ok(replies.collect())
        };
        let found = query_before(&uri, "jq", 7, &fetch).unwrap().unwrap();
        assert_eq!(found.build, Some(5));
        assert!(query_before(&uri, "jq", 5, &fetch).unwrap().is_none());
    }

    #[test]
    fn build_of_another_system_is_refused() {
        let other = FIVE.replace("x86_64", "aarch64");
        let error = run("jq", &[(LATEST, &other)]).unwrap_err();
        assert!(matches!(error, SourceError::Unusable(_)), "{error:?}");
    }

    #[test]
    fn other_replies_are_errors() {
        for reply in ["<!DOCTYPE html>", "{}", "", "\u{0}"] {
            let error = run("jq", &[(LATEST, reply)]).unwrap_err();
            assert!(matches!(error, SourceError::Reply { .. }), "{error:?}");
        }
    }
}
