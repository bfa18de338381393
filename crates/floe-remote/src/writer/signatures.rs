//! Adds signatures to paths that a daemon has.

use floe_format::PathInfo;
use floe_transfer::{Error, SignatureTarget, SigningOutcome};
use floe_wire::worker::{Reply, Request};

use super::RemoteTarget;
use crate::error::RemoteError;

impl SignatureTarget for RemoteTarget {
    /// A daemon adds whatever it gets, so floe first compares what the signatures cover.
    fn merge_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error> {
        let queries = infos
            .iter()
            .map(|info| Request::QueryPathInfo(info.path.clone()));
        let replies = self.connection().request_all(queries);
        let replies = replies.map_err(RemoteError::of_target)?;
        let (mut outcome, mut requests) = (SigningOutcome::default(), Vec::new());
        for (info, reply) in infos.iter().zip(replies) {
            let path = info.path.clone();
            let registered = match reply {
                Reply::PathInfo(Some(registered)) => registered,
                Reply::PathInfo(None) => {
                    outcome.absent.push(path);
                    continue;
                }
                _ => return Err(self.unexpected()),
            };
            if let Some(what) = info.signed_difference(&registered) {
                outcome.different.push((path, what));
                continue;
            }
            let signatures = &info.signatures - &registered.signatures;
            if !signatures.is_empty() {
                outcome.signed.push(path.clone());
                requests.push(Request::AddSignatures { path, signatures });
            }
        }
        let added = self.connection().request_all(requests);
        added.map_err(RemoteError::of_target)?;
        Ok(outcome)
    }
}
