//! Properties of decoding a message of libfloe, with one function per fuzz target.
//!
//! The fuzz targets call these functions with bytes from libFuzzer. The tests of floe-messages call
//! them with the committed corpus.

use floe_messages::{
    BytesRequest, ClosureReply, Codec, CopyReply, CopyRequest, EchoRequest, Empty, Error,
    Message as _, PathInfo, ResolveReply, ServeReply, VerifyReply,
};

/// Checks that a valid CBOR message keeps its meaning when it is encoded again.
pub fn check_messages_cbor(data: &[u8]) {
    check(Codec::Cbor, data);
}

/// Checks that a valid flat message keeps its meaning when it is encoded again. The first byte
/// selects a message, and the header is filled in, so that the fuzzer need not guess it.
pub fn check_messages_flat(data: &[u8]) {
    check(Codec::Flat, data);
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    let ids = [
        Error::ID,
        PathInfo::ID,
        ClosureReply::ID,
        CopyRequest::ID,
        CopyReply::ID,
        VerifyReply::ID,
    ];
    let id = ids[usize::from(*which) % ids.len()];
    let mut bytes = b"FLO1".to_vec();
    bytes.extend_from_slice(&(rest.len() as u32 + 16).to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(rest);
    check(Codec::Flat, &bytes);
}

/// A macro, because the second message borrows from other bytes and therefore has another type.
macro_rules! check_as {
    ($codec:expr, $data:expr, $($message:ident)*) => {{$(
        match $codec.decode::<$message>($data) {
            Ok(message) => {
                let mut bytes = Vec::new();
                $codec.encode(&message, &mut bytes);
                let again = $codec.decode::<$message>(&bytes).expect("encoded bytes decode");
                assert_eq!(again, message);
            }
            Err(error) => assert!(error.offset() <= $data.len(), "{error}"),
        }
    )*}};
}

fn check(codec: Codec, data: &[u8]) {
    check_as!(codec, data, Error Empty BytesRequest PathInfo ClosureReply CopyRequest CopyReply);
    check_as!(codec, data, VerifyReply ServeReply EchoRequest ResolveReply);
}
