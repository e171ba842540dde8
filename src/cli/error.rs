//! How a command fails: a sentence for people, a code for scripts.

use std::io;
use std::process::ExitCode;

use crate::client;

/// The cluster, or the system, said no.
const REFUSED: u8 = 1;
/// What was typed makes no sense.
const USAGE: u8 = 2;
/// Nobody answered.
const UNREACHABLE: u8 = 3;
/// The question was answered, and the answer is bad news.
const UNHEALTHY: u8 = 10;

/// Why a command ends with another code than 0.
#[derive(Debug)]
pub(super) struct Failure {
    code: u8,
    /// `None` when everything was said already.
    sentence: Option<String>,
}

impl Failure {
    pub(super) fn refused(sentence: impl Into<String>) -> Self {
        Self { code: REFUSED, sentence: Some(sentence.into()) }
    }

    pub(super) fn usage(sentence: impl Into<String>) -> Self {
        Self { code: USAGE, sentence: Some(sentence.into()) }
    }

    pub(super) fn unreachable(sentence: impl Into<String>) -> Self {
        Self { code: UNREACHABLE, sentence: Some(sentence.into()) }
    }

    /// The output has said what is wrong.
    pub(super) fn unhealthy() -> Self {
        Self { code: UNHEALTHY, sentence: None }
    }

    /// Prints the sentence and gives the code.
    pub(super) fn report(self) -> ExitCode {
        if let Some(sentence) = self.sentence {
            eprintln!("error: {sentence}");
        }
        ExitCode::from(self.code)
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        let hint = match &error {
            client::Error::Unreachable { .. } => {
                "\nIs it running? `kontiki dev` starts one; --bootstrap or KONTIKI_BOOTSTRAP says where another is."
            }
            client::Error::UnknownTopic { .. } => {
                "\n`kontiki topic list` shows all, `kontiki topic create` makes one."
            }
            _ => "",
        };
        let code = match &error {
            client::Error::InvalidAddress(_) | client::Error::NoAddress => USAGE,
            error if error.is_unreachable() => UNREACHABLE,
            _ => REFUSED,
        };
        Self { code, sentence: Some(format!("{error}{hint}")) }
    }
}

impl From<io::Error> for Failure {
    /// Of our own output. A reader that has seen enough is no failure.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { code: 0, sentence: None };
        }
        Self::refused(format!("cannot write the output: {error}"))
    }
}
