"""What the adapters of servers share: tools that live elsewhere, and worlds that a server plays."""
