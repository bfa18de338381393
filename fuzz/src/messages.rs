//! What must hold for bytes that claim to be a message of libfloe, one function per fuzz target.
//!
//! As in the library beside it: the fuzz targets call these with bytes that libFuzzer finds, and
//! the tests of floe-messages with the committed corpus.

use floe_messages::{
    BytesRequest, ClosureReply, Codec, CopyReply, CopyRequest, EchoRequest, Empty, Error,
    Message as _, PathInfo, ResolveReply, ServeReply, VerifyReply,
};

/// CBOR that is a message is written as one with the same meaning.
pub fn check_messages_cbor(data: &[u8]) {
    check(Codec::Cbor, data);
}

/// A flat message is written as one with the same meaning. Its first byte says which message it
/// is to be, and the header is made right, so that one need not be guessed.
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

/// A macro, because the second message borrows from other bytes than the first and so is another
/// type.
macro_rules! check_as {
    ($codec:expr, $data:expr, $($message:ident)*) => {{$(
        match $codec.decode::<$message>($data) {
            Ok(message) => {
                let mut bytes = Vec::new();
                $codec.encode(&message, &mut bytes);
                let again = $codec.decode::<$message>(&bytes).expect("what was encoded decodes");
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
