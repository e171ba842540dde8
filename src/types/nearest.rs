//! "Did you mean ...?": the known word nearest to one that somebody typed.

/// The candidate with the fewest single-letter edits from `word`, ignoring case; `None` when all are too far away to be
/// what was meant (more than a third of the word's letters, and at least two).
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let edits_max = (word.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (edits(&word, &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= edits_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, one row at a time.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = i;
        let mut above_left = i + 1;
        for (j, r) in right.iter().enumerate() {
            let above = row[j + 1];
            let cost = (diagonal + usize::from(l != *r)).min(above + 1).min(above_left + 1);
            row[j] = above_left;
            diagonal = above;
            above_left = cost;
        }
        row[right.len()] = above_left;
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance() {
        for (left, right, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(edits(left, right), expected, "{left} {right}");
        }
    }

    #[test]
    fn the_nearest_known_word_is_offered_and_nonsense_is_not() {
        let keys = ["retention.ms", "retention.bytes", "segment.bytes"];
        assert_eq!(nearest("retentoin.ms", keys), Some("retention.ms"));
        assert_eq!(nearest("Segment.Bytes", keys), Some("segment.bytes"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("x", []), None);
    }
}
