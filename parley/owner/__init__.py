"""What a party's owner sees and decides: facts, commands, a page on the owner's own machine."""
