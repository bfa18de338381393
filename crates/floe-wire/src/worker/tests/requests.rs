//! Requests with any contents.

use std::collections::BTreeSet;

use floe_format::{ContentAddress, Hash, HashPart, PathInfo, Signature, StorePath};
use proptest::prelude::*;

use crate::worker::{BuildMode, ClientOptions, GcAction, PathQuery, Request};

pub(super) fn path() -> impl Strategy<Value = StorePath> {
    "[0-9a-df-np-sv-z]{32}-[a-z0-9+._-]{1,20}"
        .prop_filter_map("a name of dots is not a store path", |text| {
            StorePath::parse(&text).ok()
        })
}

prop_compose! {
    pub(super) fn info()(
        path in path(),
        digest in any::<[u8; 32]>(),
        nar_size in any::<u64>(),
        references in prop::collection::btree_set(path(), 0..4),
        deriver in prop::option::of(path()),
        signature in prop::option::of(any::<[u8; 32]>()),
        is_addressed in any::<bool>(),
        registration_time in prop::option::of(1..u64::MAX),
        ultimate in any::<bool>(),
    ) -> PathInfo {
        let hash = Hash::sha256(digest);
        let key = |seed| floe_format::SecretKey::from_seed("key-1", seed).unwrap();
        let signatures: BTreeSet<Signature> =
            signature.into_iter().map(|seed| key(seed).sign(b"text")).collect();
        let ca = ContentAddress::parse(&format!("fixed:r:sha256:{}", hash.digest_nix32())).unwrap();
        PathInfo {
            path, nar_hash: hash, nar_size, references, deriver, signatures,
            ca: is_addressed.then_some(ca), registration_time, ultimate,
        }
    }
}

pub(super) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        path().prop_map(Request::AddTempRoot),
        "/[a-z/]{1,30}".prop_map(Request::AddIndirectRoot),
        Just(Request::WaitForGc),
        Just(Request::QueryAllValidPaths),
        path().prop_map(Request::QueryPathInfo),
        "[0-9a-df-np-sv-z]{32}"
            .prop_map(|text| Request::QueryPathFromHashPart(HashPart::parse(&text).unwrap())),
        (prop::collection::btree_set(path(), 0..5), any::<bool>()).prop_map(
            |(paths, substitute)| Request::QueryValidPaths {
                paths,
                substitute,
                lock: false
            }
        ),
        any::<[bool; 2]>().prop_map(|[check_contents, repair]| Request::VerifyStore {
            check_contents,
            repair
        }),
        path().prop_map(Request::NarFromPath),
        (0..PathQuery::ALL.len(), path())
            .prop_map(|(number, path)| Request::QueryPath(PathQuery::ALL[number].1, path)),
        prop_oneof![
            Just(Request::SyncWithGc),
            Just(Request::FindRoots),
            Just(Request::OptimiseStore),
            Just(Request::Compress)
        ],
        prop::collection::btree_set(path(), 0..5).prop_map(Request::QueryClosureInfos),
        path().prop_map(Request::EnsurePath),
        (path(), "/[a-z/]{1,30}").prop_map(|(path, link)| Request::AddPermRoot { path, link }),
        (texts(), build_mode()).prop_map(|(paths, mode)| Request::BuildPaths(paths, mode)),
        (texts(), build_mode())
            .prop_map(|(paths, mode)| Request::BuildPathsWithResults(paths, mode)),
        texts().prop_map(Request::QueryMissing),
        "[a-z{}]{0,20}".prop_map(Request::RegisterDrvOutput),
        "[a-z{}]{0,20}".prop_map(Request::QueryRealisation),
        "[a-z{}]{0,20}".prop_map(Request::AddBuildLog),
        prop::collection::btree_set(path(), 0..5).prop_map(Request::QuerySubstitutablePaths),
        prop::collection::btree_map(path(), "[a-z:]{0,9}", 0..3)
            .prop_map(Request::QuerySubstitutablePathInfos),
        (
            0..4_usize,
            prop::collection::btree_set(path(), 0..3),
            1..u64::MAX
        )
            .prop_map(|(action, paths, max_freed)| Request::CollectGarbage {
                action: [
                    GcAction::ReturnLive,
                    GcAction::ReturnDead,
                    GcAction::DeleteDead,
                    GcAction::DeleteSpecific
                ][action],
                paths,
                ignore_liveness: false,
                max_freed,
            }),
        info().prop_map(|info| Request::AddSignatures {
            path: info.path,
            signatures: info.signatures
        }),
        any::<[bool; 2]>().prop_map(|[repair, dont_check_sigs]| Request::AddMultipleToStore {
            repair,
            dont_check_sigs
        }),
        (info(), "[a-z]{1,9}", any::<bool>()).prop_map(|(info, name, repair)| {
            Request::AddToStore {
                name,
                method: "fixed:r:sha256".into(),
                references: info.references,
                repair,
            }
        }),
        (
            any::<bool>(),
            prop::collection::btree_map("[a-z-]{1,9}", ".{0,9}", 0..3)
        )
            .prop_map(|(use_substitutes, overrides)| Request::SetOptions(Box::new(
                ClientOptions {
                    use_substitutes,
                    overrides
                }
            ))),
        (info(), any::<bool>(), any::<bool>()).prop_map(|(info, repair, dont_check_sigs)| {
            Request::AddToStoreNar {
                info: Box::new(info),
                repair,
                dont_check_sigs,
            }
        }),
    ]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z!,]{0,20}", 0..3)
}

fn build_mode() -> impl Strategy<Value = BuildMode> {
    prop_oneof![
        Just(BuildMode::Normal),
        Just(BuildMode::Repair),
        Just(BuildMode::Check)
    ]
}
