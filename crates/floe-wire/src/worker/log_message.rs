//! The messages of a daemon's log, the last of which ends a request.

use crate::error::WireError;
use crate::input::{Input, NUMBER_LEN, TEXT_LEN_MAX};
use crate::output;

/// A message before a reply. Nix calls its number `STDERR_…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogMessage {
    /// A line of the log.
    Next(String),
    /// An activity begins.
    StartActivity {
        /// Its number.
        id: u64,
        /// Its verbosity.
        level: u64,
        /// Its kind.
        kind: u64,
        /// Its description, such as `copying path …`.
        text: String,
        /// Its arguments.
        fields: Vec<Field>,
        /// The activity that it is a part of.
        parent: u64,
    },
    /// An activity ends.
    StopActivity(u64),
    /// An activity reports progress, or a line of a build.
    Result {
        /// The number of the activity.
        id: u64,
        /// The kind of the result.
        kind: u64,
        /// Its values.
        fields: Vec<Field>,
    },
    /// The request has failed.
    Error(DaemonError),
    /// The log of the request ends; the reply follows.
    Last,
}

/// A value of an activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// The reason why a request failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonError {
    /// The verbosity of the message.
    pub level: u64,
    /// The message, with escape sequences for colours.
    pub message: String,
    /// The steps that led to the error, the innermost first.
    pub traces: Vec<String>,
}

impl LogMessage {
    /// Appends the message.
    pub fn write(&self, output: &mut Vec<u8>) {
        match self {
            LogMessage::Next(line) => {
                output::number(output, NEXT);
                output::text(output, line);
            }
            LogMessage::StartActivity {
                id,
                level,
                kind,
                text,
                fields,
                parent,
            } => {
                for number in [START_ACTIVITY, *id, *level, *kind] {
                    output::number(output, number);
                }
                output::text(output, text);
                write_fields(output, fields);
                output::number(output, *parent);
            }
            LogMessage::StopActivity(id) => {
                output::number(output, STOP_ACTIVITY);
                output::number(output, *id);
            }
            LogMessage::Result { id, kind, fields } => {
                for number in [RESULT, *id, *kind] {
                    output::number(output, number);
                }
                write_fields(output, fields);
            }
            LogMessage::Error(error) => error.write(output),
            LogMessage::Last => output::number(output, LAST),
        }
    }

    /// Parses a message.
    pub fn parse(input: &mut Input<'_>) -> Result<LogMessage, WireError> {
        Ok(match input.number()? {
            NEXT => LogMessage::Next(input.text_lossy("a line of the log")?),
            START_ACTIVITY => LogMessage::StartActivity {
                id: input.number()?,
                level: input.number()?,
                kind: input.number()?,
                text: input.text_lossy("an activity")?,
                fields: read_fields(input)?,
                parent: input.number()?,
            },
            STOP_ACTIVITY => LogMessage::StopActivity(input.number()?),
            RESULT => LogMessage::Result {
                id: input.number()?,
                kind: input.number()?,
                fields: read_fields(input)?,
            },
            ERROR => LogMessage::Error(DaemonError::parse(input)?),
            LAST => LogMessage::Last,
            other => {
                return Err(WireError::value(
                    "a message",
                    format!("{other:#x}"),
                    "floe does not know it",
                ));
            }
        })
    }
}

impl DaemonError {
    fn write(&self, output: &mut Vec<u8>) {
        output::number(output, ERROR);
        output::text(output, "Error");
        output::number(output, self.level);
        // Once a name.
        output::text(output, "Error");
        output::text(output, &self.message);
        // No position in a file.
        output::number(output, 0);
        output::number(output, self.traces.len() as u64);
        for trace in &self.traces {
            output::number(output, 0);
            output::text(output, trace);
        }
    }

    fn parse(input: &mut Input<'_>) -> Result<DaemonError, WireError> {
        let kind = input.text("the kind of an error", TEXT_LEN_MAX)?;
        if kind != "Error" {
            let reason = "it is always Error";
            return Err(WireError::value("the kind of an error", kind, reason));
        }
        let level = input.number()?;
        input.text_lossy("the name of an error")?;
        let message = input.text_lossy("an error")?;
        no_position(input)?;
        let traces = input.list("the traces of an error", 2 * NUMBER_LEN, |input| {
            no_position(input)?;
            input.text_lossy("a trace of an error")
        })?;
        Ok(DaemonError {
            level,
            message,
            traces,
        })
    }
}

/// Reads the mark for a position in a file, which the protocol cannot transfer.
fn no_position(input: &mut Input<'_>) -> Result<(), WireError> {
    match input.number()? {
        0 => Ok(()),
        other => {
            let (what, reason) = ("the position of an error", "it is always 0");
            Err(WireError::value(what, other.to_string(), reason))
        }
    }
}

fn write_fields(output: &mut Vec<u8>, fields: &[Field]) {
    output::number(output, fields.len() as u64);
    for field in fields {
        match field {
            Field::Number(number) => {
                output::number(output, 0);
                output::number(output, *number);
            }
            Field::Text(text) => {
                output::number(output, 1);
                output::text(output, text);
            }
        }
    }
}

fn read_fields(input: &mut Input<'_>) -> Result<Vec<Field>, WireError> {
    input.list("the fields of an activity", 2 * NUMBER_LEN, |input| {
        Ok(match input.number()? {
            0 => Field::Number(input.number()?),
            1 => Field::Text(input.text_lossy("a field of an activity")?),
            other => {
                return Err(WireError::value(
                    "the kind of a field",
                    other.to_string(),
                    "it is 0 or 1",
                ));
            }
        })
    })
}

/// `STDERR_NEXT`
const NEXT: u64 = 0x6f6c_6d67;
/// `STDERR_LAST`
const LAST: u64 = 0x616c_7473;
/// `STDERR_ERROR`
pub(crate) const ERROR: u64 = 0x6378_7470;
/// `STDERR_START_ACTIVITY`
const START_ACTIVITY: u64 = 0x5354_5254;
/// `STDERR_STOP_ACTIVITY`
const STOP_ACTIVITY: u64 = 0x5354_4f50;
/// `STDERR_RESULT`
const RESULT: u64 = 0x5253_4c54;
