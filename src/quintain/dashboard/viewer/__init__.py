"""The viewer: pages in a browser that show a run while it trains, and never write into its folder.

``index`` keeps a small table of the episodes of a run in the user's cache, ``payloads`` and its neighbours make what
the pages show, ``server`` answers a browser with it, and ``front`` holds the pages: plain modules and styles.
"""
