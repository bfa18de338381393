//! Lists with different storage.

use floe_messages::{List, Message as _};

use crate::shapes::{ComplexRequest, EchoRequest};

#[test]
fn lists_with_equal_elements_are_equal() {
    let requests = [1, 2, 3].map(|delay_ms| EchoRequest {
        message: "again",
        delay_ms,
    });
    let borrowed = ComplexRequest {
        messages: List::from(&requests[..]),
        tags: List::from(vec!["a", ""]),
        ..ComplexRequest::default()
    };
    let mut flat = Vec::new();
    borrowed.encode_flat(&mut flat);
    let decoded = ComplexRequest::decode_flat(&flat).unwrap();
    assert!(matches!(decoded.messages, List::Flat(_)));
    assert_eq!(decoded.messages, borrowed.messages);
    assert_eq!(decoded.messages.iter().collect::<Vec<_>>(), requests);
    assert_eq!(decoded.messages.iter().len(), 3);
    assert_eq!(format!("{:?}", decoded.tags), r#"["a", ""]"#);
    assert_eq!(decoded.tags, decoded.tags.clone());
    assert_ne!(decoded.tags, List::from(vec!["a"]));
    assert_ne!(decoded.tags, List::from(vec!["a", "b"]));
    assert!(List::<&str>::default().is_empty());
}
