//! Properties of floe-messages that hold for all bytes: one function per fuzz target.
//!
//! The fuzz targets call the functions with bytes of libFuzzer. The tests of floe-messages include
//! this file and call them with the committed corpus.

use floe_messages::{
    BytesRequest, ClosureReply, Codec, CopyReply, CopyRequest, EchoRequest, Empty, Error,
    Message as _, PathInfo, ResolveReply, ServeReply, VerifyReply,
};

/// Checks that a CBOR message that decodes equals what its encoding decodes to.
pub fn check_messages_cbor(data: &[u8]) {
    check(Codec::Cbor, data);
}

/// Checks that a flat message that decodes equals what its encoding decodes to.
///
/// The first byte selects the message, and a valid header is added, so that the fuzzer need not
/// find one.
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

/// A macro, because the two messages borrow from different bytes and thus have different types.
macro_rules! check_as {
    ($codec:expr, $data:expr, $($message:ident)*) => {{$(
        match $codec.decode::<$message>($data) {
            Ok(message) => {
                let mut bytes = Vec::new();
                $codec.encode(&message, &mut bytes);
                let again = $codec.decode::<$message>(&bytes).expect("an encoded message decodes");
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
