//! NARs that are requested while the copy still resolves the closure.

use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{corpus, run, scratch};

use crate::faulty_cache::assert_verified;
use crate::support::floe;

#[test]
fn first_nar_is_requested_soon_after_the_first_narinfo() {
    const ROUND_TRIP: Duration = Duration::from_millis(300);
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let server = FaultServer::start(&corpus.cache_copy("zstd", scratch.path()));
    server.fail("", Fault::Delayed(ROUND_TRIP));
    let root = scratch.join("root");
    let mut command = floe(["install", "--from", &server.url(), "--root"]);
    command.arg(&root).arg(&corpus.root);
    run(command.args(["--trusted-public-keys", &corpus.key])).expect(0);
    assert_verified(&root, corpus.paths.len());

    let times = |suffix: &str| -> Vec<_> {
        let requests = server.requests_for(suffix);
        requests.iter().map(|request| request.at).collect()
    };
    let (narinfos, nars) = (times(".narinfo"), times(".nar.zst"));
    let (first_nar, last_narinfo) = (nars[0], narinfos[narinfos.len() - 1]);
    assert!(
        first_nar < last_narinfo,
        "the NAR waited for the last narinfo"
    );
    // The reply of the first narinfo, and three round trips after it.
    let after = first_nar - narinfos[0];
    assert!(after <= 4 * ROUND_TRIP, "{after:?}");
}
