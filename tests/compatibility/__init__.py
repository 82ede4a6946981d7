"""Files written by earlier versions, which every later version must still read."""
