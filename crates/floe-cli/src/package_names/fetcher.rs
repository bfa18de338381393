//! The requests to name sources.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use floe_cache::{DocumentRequest, Fetched, Network, NetworkOptions, fetch_documents};
use floe_transfer::{Cancel, Events, Session};

use super::PackageNames;
use crate::options::Settings;

/// Fetches documents over a network that starts with the first one.
pub(super) struct Fetcher<'a> {
    settings: &'a Settings,
    has_used_network: &'a Cell<bool>,
    session: RefCell<Option<Session>>,
}

impl Fetcher<'_> {
    pub(super) fn new<'a>(names: &'a PackageNames<'_>) -> Fetcher<'a> {
        Fetcher {
            settings: names.settings,
            has_used_network: &names.has_used_network,
            session: RefCell::new(None),
        }
    }

    pub(super) fn fetch(&self, requests: Vec<DocumentRequest>) -> Fetched {
        let mut session = self.session.borrow_mut();
        let session = session.get_or_insert_with(|| {
            self.has_used_network.set(true);
            let options = with_short_waits(self.settings.network(false));
            Session::new(Cancel::default(), Events::default()).with_options::<Network>(options)
        });
        let network = session.service::<Network>()?;
        fetch_documents(&network, requests, &session.cancel)
    }
}

/// Shortens the waits: the user waits for the name, and a remembered one may be there.
fn with_short_waits(mut options: NetworkOptions) -> NetworkOptions {
    options.narinfo_disk_cache = None;
    options.stall_timeout = options.stall_timeout.min(STALL_TIMEOUT);
    options.retry.outage_timeout = options.retry.outage_timeout.min(OUTAGE_TIMEOUT);
    options
}

/// How long a name source may send nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a name source may be away.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(5);
