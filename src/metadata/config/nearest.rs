//! "Did you mean": the known name that is nearest to one that was typed.

/// The candidate with the smallest edit distance, if it is near enough to be what was meant.
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = typed.chars().count() / 3 + 1;
    candidates
        .into_iter()
        .map(|candidate| (distance(typed, candidate), candidate))
        .filter(|(distance, _)| *distance <= near_enough)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "abd", 1),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_typing_error_finds_what_was_meant_and_nonsense_finds_nothing() {
        let known = ["retention.ms", "retention.bytes", "segment.ms"];
        assert_eq!(nearest("retension.ms", known), Some("retention.ms"));
        assert_eq!(nearest("zzz", known), None);
    }
}
