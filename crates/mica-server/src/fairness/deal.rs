//! Shuffle sharding: which few of many queues a flow may use.
//!
//! The dealing is upstream's (`apiserver/pkg/util/shufflesharding`): a hand of different cards, each equally likely, from one
//! hash. Two flows seldom have the same hand, so a flood fills few of the queues of anybody else.

/// The largest hand: what validation allows of `handSize` with any deck.
pub const MAX_HAND: usize = 15;

/// The bits of a hash that dealing uses, so that the last card is nearly as fair as the first. Upstream's number.
const HASH_BITS: u32 = 60;

/// The queues that a flow may use.
pub fn deal(hash: u64, deck: u32, hand: u32) -> impl Iterator<Item = u32> {
    let deck = deck.max(1);
    let size = (hand.max(1).min(deck) as usize).min(MAX_HAND);
    let mut rest = hash & ((1 << HASH_BITS) - 1);
    let mut cards = [0u32; MAX_HAND];
    for (dealt, card) in (0u32..).zip(cards.iter_mut().take(size)) {
        let left = u64::from(deck - dealt);
        *card = u32::try_from(rest % left).expect("a remainder is smaller than its deck");
        rest /= left;
    }
    // Each was drawn from what the ones before it left: number it in the whole deck. From the last on, because those before
    // must still be as they were drawn.
    for i in (1..size).rev() {
        let (before, at) = cards.split_at_mut(i);
        let mut card = at[0];
        for earlier in before.iter().rev() {
            if card >= *earlier {
                card += 1;
            }
        }
        at[0] = card;
    }
    cards.into_iter().take(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values: upstream's algorithm by hand, where remainders are kept apart from cards.
    fn by_the_book(hash: u64, deck: u64, hand: usize) -> Vec<u64> {
        let (mut rest, mut remainders) = (hash & ((1 << HASH_BITS) - 1), Vec::new());
        for i in 0..hand as u64 {
            remainders.push(rest % (deck - i));
            rest /= deck - i;
        }
        (0..hand)
            .map(|i| {
                let mut card = remainders[i];
                for j in (0..i).rev() {
                    if card >= remainders[j] {
                        card += 1;
                    }
                }
                card
            })
            .collect()
    }

    #[test]
    fn hands_are_of_different_queues_and_the_same_each_time() {
        for hash in (0..2000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let hand: Vec<u32> = deal(hash, 128, 6).collect();
            let mut sorted = hand.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 6, "{hash}: {hand:?}");
            assert!(sorted.iter().all(|card| *card < 128), "{hash}: {hand:?}");
            assert_eq!(hand, deal(hash, 128, 6).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_hand_is_never_larger_than_its_deck() {
        assert_eq!(deal(7, 1, 6).collect::<Vec<_>>(), [0]);
        assert_eq!(deal(7, 3, 15).count(), 3);
        assert_eq!(deal(7, 0, 0).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn every_queue_is_dealt_about_as_often() {
        let mut dealt = [0u32; 16];
        for hash in (1..=16_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            deal(hash, 16, 4).for_each(|card| dealt[card as usize] += 1);
        }
        // 4,000 each if it were perfect.
        assert!(dealt.iter().all(|times| (3600..4400).contains(times)), "{dealt:?}");
    }

    #[test]
    fn cards_are_those_of_upstream() {
        for hash in (1..500u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let ours: Vec<u64> = deal(hash, 64, 6).map(u64::from).collect();
            assert_eq!(ours, by_the_book(hash, 64, 6), "{hash}");
        }
    }
}
