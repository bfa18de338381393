//! Arbitrary `EveryType` messages, and their values in another CBOR library.

use ciborium::Value;
use floe_messages::List;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::shapes::{Amount, EveryType, Inner};

/// The owned data of an `EveryType`.
#[derive(Clone, Debug)]
pub(crate) struct Every {
    one: (bool, u64, String, Vec<u8>, Amount, OwnedInner),
    optional: Optional,
    lists: Lists,
}

type Optional = (
    Option<bool>,
    Option<u64>,
    Option<String>,
    Option<Vec<u8>>,
    Option<Amount>,
);
type Lists = (Vec<u64>, Vec<String>, Vec<Vec<u8>>, Vec<OwnedInner>);
type OwnedInner = (Amount, String, Vec<u64>);

fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(|(number, shift)| number >> shift)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,30}", ".{0,5}", "[a\0]{0,3}", "[a-z]{250,260}"]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..30)
}

fn amount() -> impl Strategy<Value = Amount> {
    (0..Amount::ALL.len()).prop_map(|i| Amount::ALL[i])
}

fn inner() -> impl Strategy<Value = OwnedInner> {
    (amount(), text(), vec(number(), 0..4))
}

pub(crate) fn every() -> impl Strategy<Value = Every> {
    let one = (any::<bool>(), number(), text(), bytes(), amount(), inner());
    let optional = (
        option::of(any::<bool>()),
        option::of(number()),
        option::of(text()),
        option::of(bytes()),
        option::of(amount()),
    );
    let lists = (
        vec(number(), 0..30),
        vec(text(), 0..4),
        vec(bytes(), 0..4),
        vec(inner(), 0..4),
    );
    (one, optional, lists).prop_map(|(one, optional, lists)| Every {
        one,
        optional,
        lists,
    })
}

impl Every {
    pub(crate) fn message(&self) -> EveryType<'_> {
        let (one, optional, lists) = (&self.one, &self.optional, &self.lists);
        EveryType {
            bool_one: one.0,
            uint_one: one.1,
            text_one: &one.2,
            bytes_one: &one.3,
            enum_one: one.4,
            message_one: inner_message(&one.5),
            bool_optional: optional.0,
            uint_optional: optional.1,
            text_optional: optional.2.as_deref(),
            bytes_optional: optional.3.as_deref(),
            enum_optional: optional.4,
            uint_list: List::from(&*lists.0),
            text_list: lists.1.iter().map(String::as_str).collect(),
            bytes_list: lists.2.iter().map(Vec::as_slice).collect(),
            message_list: lists.3.iter().map(inner_message).collect(),
        }
    }

    /// Returns the same message as a map of another library, with its keys sorted by their
    /// encoding.
    pub(crate) fn reference_value(&self) -> Value {
        let (one, optional, lists) = (&self.one, &self.optional, &self.lists);
        let mut fields: Vec<(&str, Option<Value>)> = vec![
            ("boolOne", Some(one.0.into())),
            ("uintOne", Some(one.1.into())),
            ("textOne", Some((*one.2).into())),
            ("bytesOne", Some((*one.3).into())),
            ("enumOne", Some(amount_value(one.4))),
            ("messageOne", Some(inner_value(&one.5))),
            ("boolOptional", optional.0.map(Value::from)),
            ("uintOptional", optional.1.map(Value::from)),
            ("textOptional", optional.2.as_deref().map(Value::from)),
            ("bytesOptional", optional.3.as_deref().map(Value::from)),
            ("enumOptional", optional.4.map(amount_value)),
        ];
        fields.extend([
            ("uintList", Some(array(&lists.0, |it| (*it).into()))),
            ("textList", Some(array(&lists.1, |it| (**it).into()))),
            ("bytesList", Some(array(&lists.2, |it| (**it).into()))),
            ("messageList", Some(array(&lists.3, inner_value))),
        ]);
        let there = fields
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        map(there.collect())
    }
}

fn inner_message((amount, label, numbers): &OwnedInner) -> Inner<'_> {
    Inner {
        amount: *amount,
        label,
        numbers: List::from(&**numbers),
    }
}

fn inner_value((amount, label, numbers): &OwnedInner) -> Value {
    map(vec![
        ("amount", amount_value(*amount)),
        ("label", (**label).into()),
        ("numbers", array(numbers, |it| (*it).into())),
    ])
}

fn amount_value(amount: Amount) -> Value {
    let text = match amount {
        Amount::None => "none",
        Amount::Some => "some",
        Amount::All => "all",
    };
    text.into()
}

fn array<T>(elements: &[T], value: impl Fn(&T) -> Value) -> Value {
    Value::Array(elements.iter().map(value).collect())
}

fn map(fields: Vec<(&str, Value)>) -> Value {
    let mut fields: Vec<(Value, Value)> = fields
        .into_iter()
        .map(|(key, value)| (key.into(), value))
        .collect();
    fields.sort_by_key(|(key, _)| encoded(key));
    Value::Map(fields)
}

pub(crate) fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).expect("a vector accepts all bytes");
    bytes
}
