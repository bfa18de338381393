//! Round trips of the codecs and of general CBOR libraries: `cargo bench -p floe-messages`.
//!
//! All variants encode the same message into a reused buffer, decode it, and read each element of
//! each list. The results are compared before the measurement. The variants take turns in each
//! round, and the benchmark prints the medians of the rounds.
//!
//! Options: `--iters N` rounds (5); `--include-1mib`; `--json FILE` for the samples; `--no-gate` to
//! ignore missed gates; `--only TEXT` to select by name.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::env;
use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use floe_messages::{List, Message as _};
use serde::{Deserialize, Serialize};

use shapes::{BytesPayload, ComplexRequest, EchoRequest, EchoResponse};

#[allow(
    dead_code,
    unreachable_pub,
    reason = "generated for tests and benchmarks, each of which uses a part"
)]
#[path = "../tests/shapes/mod.rs"]
mod shapes;

/// The duration of a sample: long compared with the clock resolution, short compared with
/// disturbances.
const SAMPLE_NS: f64 = 10e6;

/// The minimum speed of our CBOR relative to the fastest general library, on small shapes.
const CBOR_GATE: f64 = 1.2;
/// The minimum speed of flat relative to our CBOR, on small shapes.
const FLAT_GATE: f64 = 2.0;
/// The minimum speed of both codecs relative to one copy, on blobs of at least this length.
const BLOB_GATE: f64 = 0.9;
const BLOB_GATE_LEN: usize = 10 << 10;

const FLAT: &str = "flat";
const CBOR: &str = "cbor";
const MEMCPY: &str = "memcpy";

/// One shape with all its variants.
struct Comparison<'p> {
    shape: String,
    /// The length of the payload in CBOR. All MiB/s are computed from it.
    len: usize,
    variants: Vec<Variant<'p>>,
}

struct Variant<'p> {
    name: &'static str,
    /// Runs this many round trips.
    run: Box<dyn FnMut(usize) + 'p>,
    /// Nanoseconds per round trip, one sample per round.
    samples: Vec<f64>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SerdeRequest<'a> {
    #[serde(rename = "delayMs")]
    delay_ms: u64,
    message: &'a str,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SerdeResponse<'a> {
    timer: &'a str,
    echoed: &'a str,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SerdeComplex<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(borrow)]
    tags: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u64>,
    #[serde(borrow)]
    messages: Vec<SerdeRequest<'a>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SerdeBytes<'a> {
    #[serde(with = "serde_bytes")]
    data: &'a [u8],
}

/// The owned types for ciborium, which cannot borrow.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OwnedRequest {
    #[serde(rename = "delayMs")]
    delay_ms: u64,
    message: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OwnedResponse {
    timer: String,
    echoed: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OwnedComplex {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u64>,
    messages: Vec<OwnedRequest>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OwnedBytes {
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
}

/// Creates a variant from three expressions: encode `$message` into the buffer, decode the bytes,
/// and read the result. It is a macro because the result borrows from the buffer of its variant.
macro_rules! variant {
    ($name:expr, $message:expr, $wire:expr, |$from:ident, $out:ident| $encode:expr,
     |$bytes:ident| $decode:expr, |$seen:ident| $look:expr) => {{
        let message = $message;
        let mut buffer = Vec::new();
        {
            let ($from, $out) = (&message, &mut buffer);
            $encode;
            let $bytes = &buffer[..];
            assert_eq!($decode, message, "{}", $name);
            let wire: Option<&[u8]> = $wire;
            assert!(
                wire.is_none_or(|wire| wire == buffer),
                "{} writes other bytes",
                $name
            );
        }
        let run = move |count: usize| {
            for _ in 0..count {
                buffer.clear();
                let ($from, $out) = (black_box(&message), &mut buffer);
                $encode;
                let $bytes = black_box(&buffer[..]);
                let $seen = $decode;
                black_box($look);
                black_box(&$seen);
            }
        };
        Variant {
            name: $name,
            run: Box::new(run),
            samples: Vec::new(),
        }
    }};
}

/// Creates all variants of one shape.
macro_rules! comparison {
    ($shape:expr, $ours:ident: $our:expr, $serde:ident: $borrowed:expr, $owned:ident: $own:expr,
     |$seen:ident| $look:expr, |$theirs:ident| $their_look:expr) => {{
        let mut wire = Vec::new();
        $our.encode_cbor(&mut wire);
        let variants = vec![
            variant!(
                FLAT,
                $our,
                None,
                |message, out| message.encode_flat(out),
                |bytes| $ours::decode_flat(bytes).expect("encoded bytes decode"),
                |$seen| $look
            ),
            variant!(
                CBOR,
                $our,
                Some(&wire),
                |message, out| message.encode_cbor(out),
                |bytes| $ours::decode_cbor(bytes).expect("encoded bytes decode"),
                |$seen| $look
            ),
            variant!(
                "cbor4ii",
                $borrowed,
                Some(&wire),
                |message, out| {
                    let taken = std::mem::take(out);
                    *out =
                        cbor4ii::serde::to_vec(taken, message).expect("a vector accepts all bytes")
                },
                |bytes| cbor4ii::serde::from_slice::<$serde>(bytes).expect("encoded bytes decode"),
                |$theirs| $their_look
            ),
            variant!(
                "minicbor",
                $borrowed,
                Some(&wire),
                |message, out| {
                    let mut serializer = minicbor_serde::Serializer::new(out);
                    message
                        .serialize(&mut serializer)
                        .expect("a vector accepts all bytes")
                },
                |bytes| minicbor_serde::from_slice::<$serde>(bytes).expect("encoded bytes decode"),
                |$theirs| $their_look
            ),
            variant!(
                "ciborium",
                $own,
                Some(&wire),
                |message, out| ciborium::into_writer(message, out)
                    .expect("a vector accepts all bytes"),
                |bytes| ciborium::from_reader::<$owned, _>(bytes).expect("encoded bytes decode"),
                |$theirs| $their_look
            ),
        ];
        Comparison {
            shape: $shape.into(),
            len: wire.len(),
            variants,
        }
    }};
}

fn small_comparisons() -> Vec<Comparison<'static>> {
    let request = comparison!(
        "EchoRequest",
        EchoRequest: EchoRequest { message: MESSAGE, delay_ms: 150 },
        SerdeRequest: SerdeRequest { delay_ms: 150, message: MESSAGE },
        OwnedRequest: OwnedRequest { delay_ms: 150, message: MESSAGE.into() },
        |seen| seen.message.len(),
        |seen| seen.message.len()
    );
    let response = comparison!(
        "EchoResponse",
        EchoResponse: EchoResponse { echoed: MESSAGE, timer: TIMER },
        SerdeResponse: SerdeResponse { timer: TIMER, echoed: MESSAGE },
        OwnedResponse: OwnedResponse { timer: TIMER.into(), echoed: MESSAGE.into() },
        |seen| seen.echoed.len(),
        |seen| seen.echoed.len()
    );
    let delays = [0, 20, 3000];
    let complex = comparison!(
        "ComplexRequest",
        ComplexRequest: ComplexRequest {
            messages: delays.map(|delay_ms| EchoRequest { message: MESSAGE, delay_ms })
                .into_iter()
                .collect(),
            tags: List::from(&TAGS[..]),
            note: Some(NOTE),
            retries: None,
        },
        SerdeComplex: SerdeComplex {
            messages: delays.map(|delay_ms| SerdeRequest { message: MESSAGE, delay_ms }).into(),
            tags: TAGS.into(),
            note: Some(NOTE),
            retries: None,
        },
        OwnedComplex: OwnedComplex {
            messages: delays
                .map(|delay_ms| OwnedRequest { message: MESSAGE.into(), delay_ms })
                .into(),
            tags: TAGS.map(String::from).into(),
            note: Some(NOTE.into()),
            retries: None,
        },
        |seen| {
            seen.messages.iter().map(|it| it.message.len()).sum::<usize>()
                + seen.tags.iter().map(str::len).sum::<usize>()
        },
        |seen| {
            seen.messages.iter().map(|it| it.message.len()).sum::<usize>()
                + seen.tags.iter().map(|it| it.len()).sum::<usize>()
        }
    );
    vec![request, response, complex]
}

fn blob_comparison(data: &[u8]) -> Comparison<'_> {
    let mut comparison = comparison!(
        format!("bytes {}", size(data.len())),
        BytesPayload: BytesPayload { data },
        SerdeBytes: SerdeBytes { data },
        OwnedBytes: OwnedBytes { data: data.to_vec() },
        |seen| seen.data.len(),
        |seen| seen.data.len()
    );
    comparison.variants.push(variant!(
        MEMCPY,
        data,
        None,
        |message, out| out.extend_from_slice(message),
        |bytes| bytes,
        |seen| seen.len()
    ));
    comparison
}

const MESSAGE: &str = "hello from the other side";
const TIMER: &str = "timer-150ms";
const NOTE: &str = "nothing in particular";
const TAGS: [&str; 4] = ["nix", "store", "closure", "benchmark"];

fn main() -> ExitCode {
    let options = match options(env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            println!("codec: {problem}");
            return ExitCode::from(2);
        }
    };
    let mut lens = vec![100, 1 << 10, 10 << 10, 64 << 10, 150 << 10];
    if options.one_mib {
        lens.push(1 << 20);
    }
    let blobs: Vec<Vec<u8>> = lens.iter().map(|len| blob(*len)).collect();
    let mut comparisons = small_comparisons();
    comparisons.extend(blobs.iter().map(|data| blob_comparison(data)));
    if let Some(only) = &options.only {
        for comparison in &mut comparisons {
            let shape = &comparison.shape;
            comparison
                .variants
                .retain(|variant| format!("{shape} {}", variant.name).contains(only));
        }
    }
    println!(
        "{:<16} {:<9} {:>12} {:>12}",
        "shape", "codec", "ns", "MiB/s"
    );
    for comparison in &mut comparisons {
        measure(comparison, options.rounds);
        for variant in &comparison.variants {
            let ns = median(&variant.samples);
            let speed = comparison.len as f64 / ns * 1e9 / f64::from(1 << 20);
            println!(
                "{:<16} {:<9} {ns:>12.1} {speed:>12.0}",
                comparison.shape, variant.name
            );
        }
    }
    if let Some(file) = &options.json
        && let Err(error) = fs::write(file, json(&comparisons))
    {
        println!("codec: cannot write {file}: {error}");
        return ExitCode::FAILURE;
    }
    let missed: Vec<String> = comparisons.iter().flat_map(missed).collect();
    missed.iter().for_each(|gate| println!("missed: {gate}"));
    if missed.is_empty() || !options.gate {
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

struct Options {
    rounds: usize,
    one_mib: bool,
    gate: bool,
    json: Option<String>,
    only: Option<String>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        rounds: 5,
        one_mib: false,
        gate: true,
        json: None,
        only: None,
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // cargo adds this flag.
            "--bench" => {}
            "--include-1mib" => options.one_mib = true,
            "--no-gate" => options.gate = false,
            "--json" => options.json = Some(arguments.next().ok_or("missing the file of --json")?),
            "--only" => options.only = Some(arguments.next().ok_or("missing the text of --only")?),
            "--iters" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                let rounds = number.filter(|rounds| *rounds > 0);
                options.rounds = rounds.ok_or("missing the number of --iters")?;
            }
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    Ok(options)
}

/// Returns bytes without a pattern.
fn blob(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn measure(comparison: &mut Comparison<'_>, rounds: usize) {
    let counts: Vec<usize> = comparison.variants.iter_mut().map(calibrate).collect();
    for round in 0..rounds {
        // Each round begins with another variant, so that no variant always follows the same one.
        for turn in 0..counts.len() {
            let i = (round + turn) % counts.len();
            let variant = &mut comparison.variants[i];
            let sample = time(variant, counts[i]);
            variant.samples.push(sample);
        }
    }
}

/// Returns the number of round trips per sample, and warms up.
fn calibrate(variant: &mut Variant<'_>) -> usize {
    let mut count = 1;
    loop {
        let total = time(variant, count) * count as f64;
        if total > SAMPLE_NS / 4.0 {
            return ((count as f64 * SAMPLE_NS / total) as usize).max(1);
        }
        count *= 2;
    }
}

/// Returns the nanoseconds per round trip.
fn time(variant: &mut Variant<'_>, count: usize) -> f64 {
    let begin = Instant::now();
    (variant.run)(count);
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns the gates that the shape misses.
fn missed(comparison: &Comparison<'_>) -> Vec<String> {
    let ns = |name: &str| {
        let variant = comparison
            .variants
            .iter()
            .find(|variant| variant.name == name);
        variant.map(|variant| median(&variant.samples))
    };
    let (Some(flat), Some(cbor)) = (ns(FLAT), ns(CBOR)) else {
        return Vec::new();
    };
    let general = ["cbor4ii", "minicbor", "ciborium"]
        .into_iter()
        .filter_map(ns);
    let best = general.fold(f64::INFINITY, f64::min);
    let gates = match ns(MEMCPY) {
        None => vec![
            (
                "cbor against the fastest general library",
                best / cbor,
                CBOR_GATE,
            ),
            ("flat against cbor", cbor / flat, FLAT_GATE),
        ],
        Some(memcpy) if comparison.len >= BLOB_GATE_LEN => vec![
            ("cbor against one copy", memcpy / cbor, BLOB_GATE),
            ("flat against one copy", memcpy / flat, BLOB_GATE),
        ],
        Some(_) => Vec::new(),
    };
    let missed = gates.into_iter().filter(|(_, ratio, gate)| ratio < gate);
    let line =
        |(what, ratio, gate)| format!("{}: {what} {ratio:.2}x, minimum {gate}x", comparison.shape);
    missed.map(line).collect()
}

fn json(comparisons: &[Comparison<'_>]) -> String {
    let mut text = String::from("[");
    for comparison in comparisons {
        for variant in &comparison.variants {
            let comma = if text.len() > 1 { "," } else { "" };
            text += &format!(
                "{comma}\n  {{\"shape\": \"{}\", \"codec\": \"{}\", \"cbor_bytes\": {}, \
                 \"ns\": {:?}}}",
                comparison.shape, variant.name, comparison.len, variant.samples
            );
        }
    }
    text + "\n]\n"
}

fn size(len: usize) -> String {
    match len {
        0x0010_0000.. => format!("{} MiB", len >> 20),
        0x0400.. => format!("{} KiB", len >> 10),
        _ => format!("{len} B"),
    }
}
