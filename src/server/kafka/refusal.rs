//! The one place where refusals of the broker and the controller become fields of a response.

use crate::controller::Refusal;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::Text;

/// An error code and its message, as most responses have them side by side.
pub(super) type Outcome = (i16, Option<Text>);

/// Success.
pub(super) const DONE: Outcome = (0, None);

/// A refusal that a handler makes itself.
pub(super) fn refused(code: ErrorCode, message: impl Into<String>) -> Outcome {
    (code.code(), Some(Text::from(message.into())))
}

/// A refusal of the broker or the controller.
pub(super) fn outcome_of(refusal: &Refusal) -> Outcome {
    refused(refusal.code, refusal.message.clone())
}

/// What happened to an item.
pub(super) fn outcome<T>(result: Result<T, Refusal>) -> Outcome {
    result.map_or_else(|refusal| outcome_of(&refusal), |_| DONE)
}

/// The results in the controller's answer to a call of the kind.
macro_rules! results_of {
    ($answer:expr, $kind:ident) => {
        match $answer {
            Ok($crate::controller::ControllerReply::$kind { results, .. }) => Ok(results),
            Ok(_) => Err($crate::server::kafka::refusal::unexpected_reply()),
            Err(refusal) => Err(refusal),
        }
    };
}
pub(super) use results_of;

/// What happened to each item of which only those without a refusal of ours went to the controller: it has one result
/// for each of them, in their order.
pub(super) fn filled_in<A, T>(
    checked: Vec<Result<A, Refusal>>,
    results: Vec<Result<T, Refusal>>,
) -> impl Iterator<Item = Result<T, Refusal>> {
    let mut results = results.into_iter();
    checked.into_iter().map(move |checked| {
        checked.and_then(|_| results.next().unwrap_or_else(|| Err(unexpected_reply())))
    })
}

/// What happened to each item of a call to the controller that has `count` of them: one result each, or the refusal of
/// the whole call for all.
pub(super) fn each<T>(
    results: Result<Vec<Result<T, Refusal>>, Refusal>,
    count: usize,
) -> Vec<Result<T, Refusal>> {
    match results {
        Ok(results) if results.len() == count => results,
        Ok(results) => {
            let message = format!("{} results for {count} items", results.len());
            all_refused(&Refusal::new(ErrorCode::UnknownServerError, message), count)
        }
        Err(refusal) => all_refused(&refusal, count),
    }
}

fn all_refused<T>(refusal: &Refusal, count: usize) -> Vec<Result<T, Refusal>> {
    (0..count).map(|_| Err(refusal.clone())).collect()
}

/// The controller answered another question than the one that was asked.
pub(super) fn unexpected_reply() -> Refusal {
    Refusal::new(ErrorCode::UnknownServerError, "the controller gave an answer of another kind")
}
