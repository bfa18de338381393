//! The number of requests of a push.

use std::fs;

use floe_testkit::{corpus, run, s3_server};

use super::{floe_with_keys, source_root};

#[test]
fn one_new_path_costs_eight_requests() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let (to, root) = (server.uri("team"), source_root(&corpus));
    let push = || {
        let args = ["push", "--to", &to, "--root", &root, &corpus.root];
        run(&mut floe_with_keys(&server, &args)).expect(0);
    };
    push();
    let hash_part = &corpus.root["/nix/store/".len()..][..32];
    let narinfo = server.bucket("team").join(format!("{hash_part}.narinfo"));
    fs::remove_file(&narinfo).unwrap();
    let before = server.log().lines().count();
    push();
    let log = server.log();
    let requests: Vec<&str> = log.lines().skip(before).collect();
    // nix-cache-info, the lease, the plan of a collection, a page of narinfos and one of NARs at
    // once, the NAR, its narinfo, and the end of the lease. With the connection these are eight
    // round trips.
    assert_eq!(requests.len(), 8, "{requests:#?}");
    for (number, part) in [
        (1, "s3_PutObject leases/"),
        (2, "s3_GetObject gc/plan"),
        (6, &format!("s3_PutObject {hash_part}.narinfo")),
        (7, "s3_DeleteObject leases/"),
    ] {
        assert!(requests[number].contains(part), "{requests:#?}");
    }
    assert!(narinfo.exists());
}
