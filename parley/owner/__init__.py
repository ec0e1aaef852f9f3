"""What a party's owner sees and decides: facts, and a page on the owner's own machine."""
